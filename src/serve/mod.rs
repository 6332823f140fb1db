//! `kalends serve`: puts the parts together, runs them, and takes them apart again.

mod error;
mod feeds;
mod high_water;
mod listen;
mod machine_clock;
pub(crate) mod maintenance;
pub(crate) mod opening;
mod stop;
mod urls;

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use actix::{Actor, Addr, System};
use actix_web::web::Data;
use actors::broadcasts::BroadcastView;
use actors::{ClientShared, Clock, EndpointLimits, EndpointShared, LocalNode, RegistryActor};
use slog::{Logger, info, warn};
use state_machine::connection::{Config, Limits};
use state_machine::{Month, NodeId, Span};
use storage::{Store, Upkeep};
use tokio::time::Instant;

pub use error::ServeError;
pub use machine_clock::DevArgs;
pub(crate) use machine_clock::unix_now;

use crate::admin::site::{Servers, Site};
use crate::admin::socket::AdminSocket;
use crate::http::app::{App, MessageIds, RequestLimits};
use crate::http::location::Locations;
use crate::http::token::Tokens;
use crate::http::vapid::{Origin, Vapid};
use crate::settings::{Settings, StoreKind};
use crate::{admin, importer, telemetry};
use high_water::HighWater;
use machine_clock::MachineClock;
use maintenance::Tables;
use opening::Opened;
use stop::Signals;
use urls::SealedUrls;

/// The name of this node in router records. There is no other node; a fixed name survives a
/// server that moves to another address.
const NODE: &str = "local";

/// What `Retry-After` says when the store is overrun or down.
const RETRY_AFTER: Span = Span::from_secs(5);

/// Serves until SIGTERM or SIGINT.
pub fn run(settings: &Settings, dev: DevArgs) -> Result<(), ServeError> {
    let (log, _guard) = telemetry::logger(settings);
    let machine = MachineClock::shifted(dev);
    if machine.is_shifted() {
        warn!(log, "the clock is shifted"; "offset_s" => dev.clock_offset_s);
    }
    System::new().block_on(serve(settings, machine, log))
}

async fn serve(settings: &Settings, machine: MachineClock, log: Logger) -> Result<(), ServeError> {
    // Before anybody can know that there is a server to stop.
    let mut signals = Signals::listen().map_err(ServeError::Signals)?;
    let listener = listen::bind(settings.listen)?;
    let bound =
        listener.local_addr().map_err(|source| ServeError::listen(settings.listen, source))?;
    let source = importer::source(settings)?;
    let clock = Clock::starting_at(machine.now());
    let (app, store, tables) = assemble(settings, bound, &clock, &log).await?;
    let server = listen::server(settings, listener, &app);
    // Where nothing comes of it, those who follow feeds are to go before those who publish them.
    let mut server = server.inspect_err(|_| app.feeds.close())?;
    if let Some(source) = source {
        importer::start(source, settings, &app.feeds, &log);
    }
    let admin = admin_socket(settings, &store, &app);
    let high_water = HighWater::in_dir(&settings.data_dir);
    maintenance::start(app.clone(), machine, high_water.clone(), tables);
    greet(settings, bound, &app.origin);
    if bound.ip().is_unspecified() && settings.public_url.is_none() {
        warn!(log, "listening on all addresses, but endpoints name this machine only: set public_url";
            "endpoints" => &app.origin);
    }
    info!(log, "listening"; "address" => %bound, "public_url" => &app.origin);
    let wait = Duration::from_millis(settings.shutdown_wait_ms);
    let (served, until) = tokio::select! {
        ended = &mut server => (ended, Instant::now() + wait),
        signal = signals.next() => {
            info!(log, "stopping"; "signal" => signal);
            let until = Instant::now() + wait;
            let stopping = stop::stop(server.handle(), &app, until, &log);
            (tokio::join!(&mut server, stopping).0, until)
        }
    };
    high_water.keep(app.ids.time(app.clock.now()) + Span(1), &log);
    if let Some(admin) = admin {
        admin.stop().await;
    }
    stop::close(&*store, until, &log).await?;
    served.map_err(ServeError::Server)
}

async fn assemble(
    settings: &Settings,
    bound: SocketAddr,
    clock: &Clock,
    log: &Logger,
) -> Result<(Data<App>, Arc<dyn Upkeep>, Tables), ServeError> {
    let Opened { keys, store: upkeep, tables, frozen_month } =
        opening::open(settings, clock.now()).await?;
    let store: Arc<dyn Store> = Arc::clone(&upkeep) as _;
    let origin = Origin::parse(&settings.public_origin(bound))?;
    let tokens = Arc::new(Tokens::new(&keys));
    let registry = RegistryActor::new(settings.registry_mailbox_max, log.clone()).start();
    let (feeds, broadcasts) = feeds::start(settings, &upkeep, clock, log).await?;
    let parts =
        Parts { settings, log, clock, store: &store, registry: &registry, broadcasts: &broadcasts };
    let feed_service = feeds::service(settings, &keys, &feeds, clock, log);
    let app = App {
        origin: origin.as_str().to_owned(),
        tokens: Arc::clone(&tokens),
        locations: Locations::new(&keys),
        limits: request_limits(settings),
        clients: Arc::new(parts.clients(frozen_month, SealedUrls::new(origin.as_str(), tokens))),
        endpoints: Arc::new(parts.endpoints()),
        vapid: Vapid::new(origin, settings.vapid_cache_bytes_max as u64),
        registry: registry.clone(),
        store: Arc::clone(&store),
        feeds,
        feed_service: Data::new(feed_service),
        clock: clock.clone(),
        ids: MessageIds::after(HighWater::in_dir(&settings.data_dir).floor(log)),
        log: log.clone(),
    };
    Ok((Data::new(app), upkeep, tables))
}

/// How commands reach a store that this process has to itself. DynamoDB they reach without it.
fn admin_socket(settings: &Settings, store: &Arc<dyn Upkeep>, app: &App) -> Option<AdminSocket> {
    if settings.store != StoreKind::Embedded {
        return None;
    }
    let site = Site {
        store: Arc::clone(store),
        clock: app.clock.clone(),
        rotation: settings.rotation,
        makes_tables: true,
        servers: Servers::ThisOne,
        feeds: Some(app.feeds.clone()),
        feed_bounds: settings.into(),
    };
    admin::socket::start(&settings.data_dir, site, &app.log)
}

/// What the actors are made of.
struct Parts<'a> {
    settings: &'a Settings,
    log: &'a Logger,
    clock: &'a Clock,
    store: &'a Arc<dyn Store>,
    registry: &'a Addr<RegistryActor>,
    broadcasts: &'a BroadcastView,
}

impl Parts<'_> {
    fn clients(&self, frozen_month: Option<Month>, urls: SealedUrls) -> ClientShared {
        let config =
            Config { node: NodeId::new(NODE), frozen_month, limits: limits(self.settings) };
        ClientShared {
            config: Arc::new(config),
            store: Arc::clone(self.store),
            registry: self.registry.clone(),
            broadcasts: Some(self.broadcasts.clone()),
            urls: Box::new(urls),
            clock: self.clock.clone(),
            mailbox_max: self.settings.client_mailbox_max,
            log: self.log.clone(),
            connections: AtomicU64::new(0),
        }
    }

    fn endpoints(&self) -> EndpointShared {
        let Settings { ack_wait_ms, answer_grace_ms, .. } = *self.settings;
        let limits = EndpointLimits {
            answer_wait: Duration::from_millis(ack_wait_ms + answer_grace_ms),
            ack_waiters_max: self.settings.ack_waiters_max,
            in_flight_max: self.settings.pushes_in_flight_max,
            mailbox_max: self.settings.endpoint_mailbox_max,
        };
        let nodes = LocalNode::new(NodeId::new(NODE), self.registry.clone());
        let (store, clock) = (Arc::clone(self.store), self.clock.clone());
        EndpointShared::new(store, Arc::new(nodes), clock, limits, self.log.clone())
    }
}

fn limits(settings: &Settings) -> Limits {
    const DAY_S: u64 = 24 * 60 * 60;
    Limits {
        hello_timeout: Span(settings.hello_timeout_ms),
        ack_wait: Span(settings.ack_wait_ms),
        drain_wait: Span(settings.drain_wait_ms),
        keepalive_interval: Span::from_secs(settings.keepalive_interval_s),
        keepalive_grace: Span::from_secs(settings.keepalive_grace_s),
        session_max: Span::from_secs(settings.session_max_days * DAY_S),
        storage_recheck: Span::from_secs(settings.storage_recheck_s),
        store_retry: Span(settings.store_retry_ms),
        fetch_rows_max: settings.fetch_rows_max,
        fetch_bytes_max: settings.fetch_bytes_max,
        unacked_max: settings.unacked_max,
        deferred_commands_max: settings.deferred_commands_max,
        remembered_acks_max: settings.remembered_acks_max,
        channels_max: settings.channels_max,
        broadcasts_per_agent_max: settings.broadcasts_per_agent_max,
        last_connect_spread: settings.last_connect_spread,
    }
}

fn request_limits(settings: &Settings) -> RequestLimits {
    RequestLimits {
        payload_bytes_max: settings.payload_bytes_max,
        aesgcm_bytes_max: settings.aesgcm_bytes_max(),
        frame_bytes_max: settings.frame_bytes_max,
        ttl_max: Span::from_secs(settings.ttl_max_s),
        body_timeout: Duration::from_millis(settings.request_body_timeout_ms),
        retry_after: RETRY_AFTER,
    }
}

/// Says where it is and what to set in Firefox. A closed standard output is no reason not to serve.
fn greet(settings: &Settings, bound: SocketAddr, origin: &str) {
    let socket = origin.replacen("http", "ws", 1);
    let data = settings.data_dir.display();
    let text = format!(
        "Kalends is listening on http://{bound}\n\
         Endpoints begin with {origin}/wpush/, data is in {data}\n\
         Firefox: open about:config and set\n  \
           dom.push.serverURL = {socket}/\n  \
           dom.push.testing.allowInsecureServerURL = true   (only while it is ws:, not wss:)\n\
         Try it: kalends listen {socket}/\n"
    );
    let _ = std::io::stdout().write_all(text.as_bytes());
}
