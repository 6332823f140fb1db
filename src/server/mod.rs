//! `kalends serve`, `connect` and `endpoint`: put the parts together, run them, and take them apart again.
//!
//! - [`node`]: the parts that a role has.
//! - [`open_store`]: keys and store.
//! - [`listen`]: the ports; [`accept_drain`]: how one closes; [`router_url_check`]: whether others find a node.
//! - [`maintenance`]: what a node does by itself.
//! - [`shutdown`]: the end.

mod accept_drain;
mod error;
mod feeds;
pub(crate) mod key_fingerprints;
mod limits;
mod listen;
pub(crate) mod maintenance;
mod message_id_floor;
mod node;
pub(crate) mod open_store;
mod router_url_check;
mod shutdown;
mod startup_log;
mod system_clock;
mod urls;

use std::sync::Arc;

use actix::System;
use actors::Clock;
use slog::{Logger, info, warn};
use state_machine::{Span, Time};
use storage::StoreAdmin;

pub use error::ServeError;
pub use key_fingerprints::KeyFingerprintsError;
pub use system_clock::DevArgs;
pub(crate) use system_clock::unix_now;

use crate::admin::job_context::{JobContext, Servers};
use crate::admin::socket::AdminSocket;
use crate::feeds::import;
use crate::http::app::AppState;
use crate::peers::inbound::RouterPort;
use crate::peers::outbound::RouterUrlCheck;
use crate::settings::{Role, Settings, StoreKind};
use crate::{admin, telemetry};
use listen::{BoundSockets, RunningServers};
use message_id_floor::IdFloor;
use node::Node;
use shutdown::{Shutdown, Signals};
use system_clock::SystemClock;

/// What `Retry-After` says when the store is overrun or down.
const RETRY_AFTER: Span = Span::from_secs(5);

/// Serves until SIGTERM or SIGINT, with settings that go together with the role ([`Settings::check`]).
pub fn run(role: Role, settings: &Settings, dev: DevArgs) -> Result<(), ServeError> {
    let (log, _guard) = telemetry::logger(settings);
    let machine = SystemClock::shifted(dev);
    if machine.is_shifted() {
        warn!(log, "the clock is shifted"; "offset_s" => dev.clock_offset_s);
    }
    System::new().block_on(serve(role, settings, machine, log))
}

async fn serve(
    role: Role,
    settings: &Settings,
    machine: SystemClock,
    log: Logger,
) -> Result<(), ServeError> {
    // Before anybody can know that there is a server to stop.
    let mut signals = Signals::listen().map_err(ServeError::Signals)?;
    let sockets = BoundSockets::bind(role, settings)?;
    let source = role.has_endpoints().then(|| import::source(settings)).transpose()?.flatten();
    let clock = Clock::starting_at(machine.now());
    let assembled = tokio::select! {
        assembled = node::assemble(role, settings, &sockets, &clock, &log) => assembled?,
        // A store that does not answer is waited for as long as it may take, and not against somebody's will.
        signal = signals.next() => {
            info!(log, "stopped before it had started"; "signal" => signal);
            return Ok(());
        }
    };
    let Node { node, router, router_url_check, store, tables, origin, lock: _lock } = assembled;
    let ports = open(settings, sockets, &node, router, router_url_check).await;
    // Where nothing comes of it, those who follow feeds are to go before those who publish them.
    let ports = ports.inspect_err(|_| node.common.feeds.close())?;
    if let Some(source) = source {
        import::start(source, settings, &node.common.feeds, &log);
    }
    let admin = admin_socket(settings, &store, &node);
    let id_floor = IdFloor::of(role, settings);
    maintenance::start(node.clone(), machine, id_floor.clone(), tables);
    startup_log::write(role, settings, &ports, &origin, &log);
    let shutdown = Shutdown { role, settings, node: &node, log: &log };
    let (served, until) = shutdown.serve_until_stopped(ports, signals).await;
    if let Some((reached, id_floor)) = reached_ids(&node).zip(id_floor) {
        id_floor.keep(reached, &log);
    }
    if let Some(admin) = admin {
        admin.stop().await;
    }
    shutdown::close(&*store, until, &log).await?;
    served.map_err(ServeError::Server)
}

/// Opens the ports, the public one once it is known that no other node has this one's name.
async fn open(
    settings: &Settings,
    sockets: BoundSockets,
    node: &AppState,
    router: Option<RouterPort>,
    router_url_check: Option<RouterUrlCheck>,
) -> Result<RunningServers, ServeError> {
    let ports = sockets.answer_nodes(router)?;
    if let Some(router_url_check) = router_url_check {
        router_url_check::check(router_url_check, &node.common.log).await?;
    }
    ports.answer_all(settings, node)
}

/// How far message ids have come, on a node that makes any.
fn reached_ids(node: &AppState) -> Option<Time> {
    let endpoints = node.endpoints.as_ref()?;
    Some(endpoints.ids.time(node.common.clock.now()) + Span(1))
}

/// How commands reach a store that this process has to itself. DynamoDB they reach without it.
fn admin_socket(
    settings: &Settings,
    store: &Arc<dyn StoreAdmin>,
    node: &AppState,
) -> Option<AdminSocket> {
    if settings.store != StoreKind::Embedded {
        return None;
    }
    let common = &node.common;
    let site = JobContext {
        store: Arc::clone(store),
        clock: common.clock.clone(),
        rotation: settings.rotation,
        makes_tables: true,
        servers: Servers::ThisOne,
        feeds: Some(common.feeds.clone()),
        feed_bounds: settings.into(),
    };
    admin::socket::start(&settings.data_dir, site, &common.log)
}
