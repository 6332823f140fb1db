//! `kalends serve`: builds the parts of a node, runs them until a signal arrives, and shuts down. The role and the settings
//! enter, and signals. The exit and its [`ServeError`] leave.
//!
//! - [`open_files`]: the limit of open files, and how many connections fit into it.
//! - [`node`]: the parts of each role; [`open_store`]: its keys and its store.
//! - [`other_servers`]: what differs from the server before on the same tables.
//! - [`listen`]: the ports; [`accept_drain`]: closing them; [`router_url_check`]: whether other nodes
//!   reach the router port.
//! - [`upgrade_log`]: what is logged while the store is upgraded.
//! - [`maintenance`]: periodic work; [`disk_watch`]: the space of the disk.
//! - [`shutdown`]: from the signal to the last answer.
//! - [`ephemeral`]: a server for tests; [`dev_clock`]: the clock that they move.

mod accept_drain;
pub mod acme;
mod dev_clock;
mod disk_watch;
mod ephemeral;
mod error;
#[cfg(test)]
mod fixed_texts;
#[cfg(test)]
mod health_tests;
#[cfg(test)]
mod hostile_request_tests;
mod limits;
mod listen;
mod maintenance;
mod message_id_floor;
mod node;
mod open_files;
mod open_store;
mod other_servers;
mod router_url_check;
pub mod serve;
mod shutdown;
pub mod sockets;
mod startup_log;
pub mod systemd;
mod upgrade_log;

use std::sync::Arc;
use std::time::Duration;

use actix::System;
use actix_web::web::Data;
use actors::{Clock, Directory};
use futures_util::future::OptionFuture;
use hyper::http::Extensions;
use slog::{Logger, info, warn};
use storage::StoreAdmin;

pub use error::ServeError;

use crate::cluster::inbound::RouterPort;
use crate::cluster::outbound::NodeAccess;
use crate::command::socket::{self, AdminSocket};
use crate::command::{Commands, Context, Servers};
use crate::feeds::import;
use crate::monitoring;
use crate::operate::scheduled;
use crate::push::app::AppState;
use crate::server::acme::port::Answers;
use crate::server::sockets::InheritedSockets;
use crate::settings::{Role, Settings, StoreKind};
use crate::system::clock::SystemClock;
use crate::system::telemetry;
use crate::system::telemetry::{LogState, PanicLog};
use crate::system::tls::certificate::{Certificate, CertificateFiles, TlsError};
use crate::system::tls::certificates::Certificates;
use crate::system::tls::{Tls, reload};
use dev_clock::DevClock;
use ephemeral::Home;
use listen::{BoundSocket, BoundSockets, Port, PublicApis, RunningServers};
use node::Node;
use shutdown::{Shutdown, Signals};

/// What developers and tests ask of a server.
struct Use {
    /// How many seconds its clock is ahead of the system's.
    clock_offset_s: i64,
    /// Whether it has `/dev/clock`.
    has_clock: bool,
    /// The directory of a server for a test.
    home: Option<Home>,
}

/// Serves until SIGTERM or SIGINT. The settings fit the role ([`Settings::check`]).
fn run(
    role: Role,
    settings: &Settings,
    use_of: &Use,
    commands: Commands,
) -> Result<(), ServeError> {
    let (log, log_state, _guard) =
        telemetry::logger(settings.log_format, settings.log_level, settings.log_queue_max);
    let _panics = PanicLog::start(log.clone());
    let machine = SystemClock::shifted(use_of.clock_offset_s);
    if machine.is_shifted() {
        warn!(log, "the clock is shifted"; "offset_s" => use_of.clock_offset_s);
    }
    System::new().block_on(serve(role, settings, (machine, use_of), (log, log_state), commands))
}

async fn serve(
    role: Role,
    settings: &Settings,
    (machine, use_of): (SystemClock, &Use),
    (log, log_state): (Logger, Arc<LogState>),
    commands: Commands,
) -> Result<(), ServeError> {
    // First of all: a signal during startup must end the server too.
    let mut signals = Signals::listen(use_of.home.is_some()).map_err(ServeError::Signals)?;
    let read = |files: CertificateFiles| Ok::<_, TlsError>((files.read(machine.now())?, files));
    let certificate = settings.certificate_files().map(read).transpose()?;
    let mut inherited = InheritedSockets::from_env()?;
    let mut sockets = BoundSockets::bind(role, settings, &mut inherited)?;
    let metrics_port = monitoring::bind(settings, inherited.take("metrics"), &log)?;
    let operator = metrics_port.as_ref().and_then(|port| port.local_addr().ok());
    let source = role.has_endpoints().then(|| import::source(settings)).transpose()?.flatten();
    let wanted = settings.connections_max;
    let settings = &open_files::fit(role, settings, open_files::raise_limit(), &log)?;
    let clock = Clock::starting_at(machine.now());
    let assembled = tokio::select! {
        assembled = node::assemble(role, settings, &sockets, &clock, (&log, &log_state)) => assembled?,
        // A store may take long to answer; a signal ends the wait.
        signal = signals.next() => {
            info!(log, "stopped during startup"; "signal" => signal);
            return Ok(());
        }
    };
    let Node {
        app: node,
        mut apis,
        router,
        router_url,
        store,
        upkeep,
        origin,
        peers,
        nodes,
        lock: _lock,
    } = assembled;
    node.common.judge.connections_wanted.get_or_init(|| wanted);
    apis.clock = use_of.has_clock.then(|| DevClock::new(&node, &store, &upkeep.tables));
    let router = router_port(sockets.router.take().zip(router), &node)?;
    let is_reached = match router_url {
        Some(url) => router_url_check::check(url, &log).await,
        None => Ok(()),
    };
    let ports = is_reached
        .and_then(|()| public_ports(sockets, certificate, settings, &node, apis, router, &origin));
    // On an error the consumers of feeds end before their publisher.
    let ports = ports.inspect_err(|_| node.common.feeds.close())?;
    if let Some(source) = source {
        import::start(source, settings, &node.common);
    }
    let jobs = command_context(settings, &store, &node, &origin, (peers, nodes));
    let admin = socket::start(&settings.data_dir, commands.served(), jobs.clone(), &log);
    maintenance::start(settings, &node, &store, machine, upkeep);
    let scheduled = scheduled::start(jobs.clone(), Data::clone(&node.common));
    let monitoring = monitoring::start(metrics_port, settings, &node, jobs)?;
    let line = |home: &Home| home.line(settings, &origin, (&ports.public.socket.address, operator));
    let line = use_of.home.as_ref().map(line);
    startup_log::write(line, (role, settings), &ports, &origin, &node.common);
    systemd::started(&node);
    let shutdown = Shutdown { role, settings, node: &node, log: &log };
    let (served, until) = shutdown.serve_until_stopped(ports, signals).await;
    // A backup is a command at the socket.
    OptionFuture::from(admin.map(AdminSocket::stop)).await;
    tokio::join!(scheduled.stop(), monitoring.end());
    shutdown::close(&*store, until, &log).await?;
    served.map_err(ServeError::Server)
}

fn router_port(
    router: Option<(BoundSocket, RouterPort)>,
    node: &AppState,
) -> Result<Option<Port>, ServeError> {
    let serve = |(socket, router): (BoundSocket, RouterPort)| {
        let limits = Arc::clone(&node.common.limits);
        let open = move || limits.open_router_connection();
        socket.serve(|listener| router.serve(listener, open))
    };
    router.map(serve).transpose()
}

/// Serves the public port and that of `http_listen`, and orders the certificate of the public port.
fn public_ports(
    sockets: BoundSockets,
    certificate: Option<(Certificate, CertificateFiles)>,
    settings: &Settings,
    node: &AppState,
    apis: PublicApis,
    router: Option<Port>,
    origin: &str,
) -> Result<RunningServers, ServeError> {
    let (certificate, files) = certificate.unzip();
    let certificates = Arc::clone(&node.common.certificates);
    if let Some(certificate) = certificate {
        certificates.replace(certificate);
    }
    let tls = tls(files, &certificates, settings, node)?;
    let answers = Arc::new(Answers::default());
    let serve_http =
        |listener| acme::port::serve(listener, settings, origin, &answers, &node.common.limits);
    let http = sockets.http.map(|socket| socket.serve(serve_http)).transpose()?;
    if let Some(place) = sockets.public.place() {
        node.common.judge.socket.get_or_init(|| place);
    }
    let serve = |listener| listen::public_server(settings, listener, node, apis, tls);
    let public = sockets.public.serve(serve)?;
    let (clock, log) = (node.common.clock.clone(), node.common.log.clone());
    acme::orderer::start(settings, certificates, answers, clock, log)
        .map_err(ServeError::Signals)?;
    Ok(RunningServers { public, router, http })
}

/// TLS with a certificate whose files are read again when they change, or with those that are ordered.
fn tls(
    files: Option<CertificateFiles>,
    certificates: &Arc<Certificates>,
    settings: &Settings,
    node: &AppState,
) -> Result<Option<Arc<Tls>>, ServeError> {
    if files.is_none() && settings.acme_domain().is_none() {
        return Ok(None);
    }
    let timeout = Duration::from_millis(settings.tls_handshake_timeout_ms);
    let (clock, log) = (node.common.clock.clone(), node.common.log.clone());
    let tickets = Arc::clone(&node.common.tickets);
    let tls = Tls::new(Arc::clone(certificates), tickets, timeout, clock.clone(), log.clone())?;
    if let Some(files) = files {
        let certificates = Arc::clone(certificates);
        reload::start(files, certificates, clock, log).map_err(ServeError::Signals)?;
    }
    Ok(Some(Arc::new(tls)))
}

/// What the commands of operators work on, at `admin.sock` and on the operator's page. Most commands use DynamoDB
/// without the server.
fn command_context(
    settings: &Settings,
    store: &Arc<dyn StoreAdmin>,
    node: &AppState,
    origin: &str,
    (peers, nodes): (Option<NodeAccess>, Directory),
) -> Context {
    let common = &node.common;
    let clients = node.connections.as_ref().map(|connections| &connections.clients);
    let mut parts = Extensions::new();
    parts.insert(common.feeds.clone());
    parts.insert(common.access.clone());
    parts.insert(Arc::clone(&common.limits));
    parts.insert(Arc::clone(&common.refusals));
    parts.insert(node.clone());
    parts.insert(nodes);
    peers.map(|peers| parts.insert(peers));
    if let Some(clients) = clients {
        parts.insert(clients.registry.clone());
        parts.insert(Arc::clone(&clients.counters));
    }
    node.endpoints.as_ref().map(|endpoints| parts.insert(Arc::clone(&endpoints.history)));
    Context {
        store: Arc::clone(store),
        settings: Arc::new(settings.clone()),
        clock: common.clock.clone(),
        frozen_month: clients.and_then(|clients| clients.config.frozen_month),
        servers: match settings.store {
            StoreKind::Embedded => Servers::ThisOne,
            StoreKind::DynamoDb | StoreKind::PostgreSql => Servers::Unknown,
        },
        origin: Some(origin.to_owned()),
        parts: parts.into(),
    }
}
