//! What the server uses of what it has, each with what sets its limit.

use std::path::Path;

use rustix::fs::statvfs;
use serde::Serialize;
use storage::EngineState;

use crate::limits::PortName;
use crate::monitoring::process;
use crate::push::app::AppState;
use crate::settings::StoreKind;

/// A bar of the page.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Resource {
    name: &'static str,
    used: u64,
    limit: u64,
    is_bytes: bool,
    /// The setting, or what else sets the limit.
    setting: &'static str,
}

/// Those of a server with this store. Other systems than Linux do not have all.
pub(super) fn read(node: &AppState, store: StoreKind, data_dir: &Path) -> Vec<Resource> {
    let common = &node.common;
    let EngineState { queue, disk, .. } = common.store.state();
    let bytes =
        |name, used, (limit, setting)| Resource { name, used, limit, is_bytes: true, setting };
    let count = |name, used: usize, limit: u64, setting| Resource {
        name,
        used: used as u64,
        limit,
        is_bytes: false,
        setting,
    };
    let mut all = Vec::new();
    if let (Some(disk), Ok(whole)) = (disk, statvfs(data_dir)) {
        let whole = whole.f_blocks.saturating_mul(whole.f_frsize);
        // A minimum that is larger than the disk leaves nothing to use.
        let most = whole.checked_sub(disk.free_bytes_min).filter(|most| *most > 0).unwrap_or(whole);
        let limit = (most, "disk_free_min");
        all.push(bytes("Disk", whole.saturating_sub(disk.free_bytes), limit));
    }
    let process = process::read();
    if let (Some(process), Some(limit)) = (process, process::memory_max()) {
        all.push(bytes("Memory", process.resident_bytes, limit));
    }
    if let (Some(process), Some(limit)) = (process, process::open_files_max()) {
        all.push(count("Open files", process.open_files, limit, "LimitNOFILE of the unit"));
    }
    let port = common.limits.port_state(PortName::Public);
    let limit = port.connections_max as u64;
    all.push(count("Connections", port.connections, limit, "connections_max"));
    // A server of all roles has no router port.
    if node.connections.is_some() && node.endpoints.is_none() {
        let port = common.limits.port_state(PortName::Router);
        let limit = port.connections_max as u64;
        all.push(count("Router port", port.connections, limit, "router_connections_max"));
    }
    if let Some(queue) = queue {
        let setting = match store {
            StoreKind::Embedded => "write_queue_max",
            StoreKind::DynamoDb => "dynamodb_requests_max",
            StoreKind::PostgreSql => "postgresql_requests_max",
        };
        all.push(count("Queue of the store", queue.length, queue.max as u64, setting));
    }
    all
}
