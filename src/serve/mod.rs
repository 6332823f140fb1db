//! `kalends serve`, `connect` and `endpoint`: put the parts together, run them, and take them apart again.
//!
//! - [`node`]: the parts that a role has.
//! - [`opening`]: keys and store.
//! - [`listen`]: the ports; [`doorstep`]: how one closes; [`own_url`]: whether others find a node.
//! - [`maintenance`]: what a node does by itself.
//! - [`stop`]: the end.

mod doorstep;
mod error;
mod feeds;
mod greeting;
mod high_water;
pub(crate) mod key_marks;
mod limits;
mod listen;
mod machine_clock;
pub(crate) mod maintenance;
mod node;
pub(crate) mod opening;
mod own_url;
mod stop;
mod urls;

use std::sync::Arc;

use actix::System;
use actors::Clock;
use slog::{Logger, info, warn};
use state_machine::{Span, Time};
use storage::Upkeep;

pub use error::ServeError;
pub use key_marks::KeyMarksError;
pub use machine_clock::DevArgs;
pub(crate) use machine_clock::unix_now;

use crate::admin::site::{Servers, Site};
use crate::admin::socket::AdminSocket;
use crate::http::app::Node;
use crate::nodes::port::RouterPort;
use crate::nodes::remote::OwnUrl;
use crate::settings::{Role, Settings, StoreKind};
use crate::{admin, importer, telemetry};
use high_water::HighWater;
use listen::{Ports, Sockets};
use machine_clock::MachineClock;
use node::Assembled;
use stop::{Ending, Signals};

/// What `Retry-After` says when the store is overrun or down.
const RETRY_AFTER: Span = Span::from_secs(5);

/// Serves until SIGTERM or SIGINT, with settings that go together with the role ([`Settings::check`]).
pub fn run(role: Role, settings: &Settings, dev: DevArgs) -> Result<(), ServeError> {
    let (log, _guard) = telemetry::logger(settings);
    let machine = MachineClock::shifted(dev);
    if machine.is_shifted() {
        warn!(log, "the clock is shifted"; "offset_s" => dev.clock_offset_s);
    }
    System::new().block_on(serve(role, settings, machine, log))
}

async fn serve(
    role: Role,
    settings: &Settings,
    machine: MachineClock,
    log: Logger,
) -> Result<(), ServeError> {
    // Before anybody can know that there is a server to stop.
    let mut signals = Signals::listen().map_err(ServeError::Signals)?;
    let sockets = Sockets::bind(role, settings)?;
    let source = role.has_endpoints().then(|| importer::source(settings)).transpose()?.flatten();
    let clock = Clock::starting_at(machine.now());
    let assembled = tokio::select! {
        assembled = node::assemble(role, settings, &sockets, &clock, &log) => assembled?,
        // A store that does not answer is waited for as long as it may take, and not against somebody's will.
        signal = signals.next() => {
            info!(log, "stopped before it had started"; "signal" => signal);
            return Ok(());
        }
    };
    let Assembled { node, router, own_url, store, tables, origin, lock: _lock } = assembled;
    let ports = open(settings, sockets, &node, router, own_url).await;
    // Where nothing comes of it, those who follow feeds are to go before those who publish them.
    let ports = ports.inspect_err(|_| node.common.feeds.close())?;
    if let Some(source) = source {
        importer::start(source, settings, &node.common.feeds, &log);
    }
    let admin = admin_socket(settings, &store, &node);
    let high_water = HighWater::of(role, settings);
    maintenance::start(node.clone(), machine, high_water.clone(), tables);
    greeting::say(role, settings, &ports, &origin, &log);
    let ending = Ending { role, settings, node: &node, log: &log };
    let (served, until) = ending.come(ports, signals).await;
    if let Some((reached, high_water)) = reached_ids(&node).zip(high_water) {
        high_water.keep(reached, &log);
    }
    if let Some(admin) = admin {
        admin.stop().await;
    }
    stop::close(&*store, until, &log).await?;
    served.map_err(ServeError::Server)
}

/// Opens the ports, the public one once it is known that no other node has this one's name.
async fn open(
    settings: &Settings,
    sockets: Sockets,
    node: &Node,
    router: Option<RouterPort>,
    own_url: Option<OwnUrl>,
) -> Result<Ports, ServeError> {
    let ports = sockets.answer_nodes(router)?;
    if let Some(own_url) = own_url {
        own_url::check(own_url, &node.common.log).await?;
    }
    ports.answer_all(settings, node)
}

/// How far message ids have come, on a node that makes any.
fn reached_ids(node: &Node) -> Option<Time> {
    let endpoints = node.endpoints.as_ref()?;
    Some(endpoints.ids.time(node.common.clock.now()) + Span(1))
}

/// How commands reach a store that this process has to itself. DynamoDB they reach without it.
fn admin_socket(settings: &Settings, store: &Arc<dyn Upkeep>, node: &Node) -> Option<AdminSocket> {
    if settings.store != StoreKind::Embedded {
        return None;
    }
    let common = &node.common;
    let site = Site {
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
