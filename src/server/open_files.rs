//! The limit of open files: raised at start, and divided among the ports.
//!
//! A port accepts no more connections than fit into the limit, so that a database file, a peer or the
//! admin socket never lacks a file because strangers connected.

use std::cmp::min;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use slog::{Logger, info, o, warn};

use super::error::ServeError;
use crate::settings::{Role, Settings, StoreKind, is_missed};

/// Open files that have no setting: database files and logs of the writer and of each reader, log,
/// signals, admin socket and its commands, importer. A single node uses about half of them.
const FILES_RESERVED: usize = 256;

/// Open files of a worker thread: its event loop, for each of the two ports.
const FILES_PER_WORKER: usize = 8;

/// Part of the remaining files that the router port may use: one of this many.
const ROUTER_SHARE: usize = 4;

/// Raises the soft limit of open files to the hard one. Returns the limit.
pub(super) fn raise_limit() -> usize {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // On an error the soft limit stays, and the ports get fewer connections.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let limit = getrlimit(Resource::Nofile).current;
    limit.and_then(|files| usize::try_from(files).ok()).unwrap_or(usize::MAX)
}

/// The settings with as many connections as `limit` open files allow. Each lowered one is logged: as a warning if an
/// operator set it, or if few are left.
pub(super) fn fit(
    role: Role,
    settings: &Settings,
    limit: usize,
    log: &Logger,
) -> Result<Settings, ServeError> {
    let reserved = reserved(role, settings);
    let free = limit.saturating_sub(reserved);
    let mut fitted = settings.clone();
    let fit = |name: &'static str, (wanted, default): (usize, usize), free: usize| {
        let about =
            o!("setting" => name, "value" => wanted, "lowered_to" => free, "open_files" => limit);
        if is_missed(free, wanted, default) {
            warn!(
                log.new(about),
                "the limit of open files lowers a limit of connections: raise it, or lower the setting"
            );
        } else if wanted > free {
            info!(
                log.new(about),
                "the limit of open files allows fewer connections than the default"
            );
        }
        min(wanted, free)
    };
    let default = Settings::default();
    if role == Role::Connection {
        let router = &mut fitted.router_connections_max;
        let wanted = (*router, default.router_connections_max);
        *router = fit("router_connections_max", wanted, free / ROUTER_SHARE);
    }
    let left = free - if role == Role::Connection { fitted.router_connections_max } else { 0 };
    let wanted = (fitted.connections_max, default.connections_max);
    fitted.connections_max = fit("connections_max", wanted, left);
    let is_enough = fitted.connections_max > 0 && fitted.router_connections_max > 0;
    is_enough.then_some(fitted).ok_or(ServeError::OpenFiles { limit, reserved })
}

/// Open files that the node needs for other purposes than its ports.
fn reserved(role: Role, settings: &Settings) -> usize {
    let store = match settings.store {
        StoreKind::Embedded => 0,
        StoreKind::DynamoDb => settings.dynamodb_connections_max,
        // Of each of its four kinds.
        StoreKind::PostgreSql => 4 * settings.postgresql_connections_max,
    };
    // More than one node at its limit is no usual load. Without a file, its messages are stored.
    let peers = if role.is_cluster_node() { settings.node_requests_max } else { 0 };
    FILES_RESERVED + FILES_PER_WORKER * settings.worker_threads() + store + peers
}

#[cfg(test)]
mod tests {
    use slog::{Discard, o};

    use super::*;

    fn fitted(role: Role, limit: usize) -> Option<(usize, usize)> {
        let settings = Settings {
            workers: 2,
            store: StoreKind::DynamoDb,
            connections_max: 5000,
            router_connections_max: 1000,
            ..Settings::default()
        };
        let fitted = fit(role, &settings, limit, &Logger::root(Discard, o!())).ok()?;
        Some((fitted.connections_max, fitted.router_connections_max))
    }

    #[test]
    fn the_connections_and_all_other_files_fit_into_the_limit() {
        let single = FILES_RESERVED + 2 * FILES_PER_WORKER + 256;
        let cluster = single + 512;
        for (role, limit, connections) in [
            (Role::All, usize::MAX, Some((5000, 1000))),
            (Role::All, single + 5000, Some((5000, 1000))),
            (Role::All, single + 4999, Some((4999, 1000))),
            (Role::All, single + 1, Some((1, 1000))),
            (Role::All, single, None),
            (Role::All, 3, None),
            (Role::Endpoint, cluster + 400, Some((400, 1000))),
            (Role::Connection, cluster + 400, Some((300, 100))),
            (Role::Connection, cluster + 5000, Some((4000, 1000))),
            (Role::Connection, cluster + 3, None),
        ] {
            assert_eq!(fitted(role, limit), connections, "{role:?} {limit}");
        }
    }
}
