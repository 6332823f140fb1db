//! What the server uses of what it has, each with what sets its limit.

use rustix::fs::statvfs;
use serde::Serialize;
use storage::{DiskSpace, EngineState};

use crate::limits::PortName;
use crate::monitoring::process;
use crate::push::app::AppState;
use crate::push::judge::{Check, Judgement, Severity, disk};
use crate::settings::{Settings, StoreKind};

/// A bar of the page.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Resource {
    name: &'static str,
    used: u64,
    limit: u64,
    is_bytes: bool,
    /// The setting, or what else sets the limit.
    setting: &'static str,
    /// Words in place of the numbers, and how bad the finding is that has them too.
    words: Option<String>,
    severity: Option<Severity>,
}

/// Those of a server with these settings. Other systems than Linux do not have all.
pub(super) fn read(node: &AppState, settings: &Settings, judgement: &Judgement) -> Vec<Resource> {
    let common = &node.common;
    let EngineState { queue, disk, .. } = common.store.state();
    let bytes = |name, used, (limit, setting)| Resource {
        name,
        used,
        limit,
        is_bytes: true,
        setting,
        words: None,
        severity: None,
    };
    let count = |name, used: usize, limit: u64, setting| Resource {
        is_bytes: false,
        ..bytes(name, used as u64, (limit, setting))
    };
    let mut all = Vec::new();
    if let (Some(disk), Ok(whole)) = (disk, statvfs(&settings.data_dir)) {
        let DiskSpace { free_bytes: free, free_bytes_min: min, .. } = disk;
        let whole = whole.f_blocks.saturating_mul(whole.f_frsize);
        // A minimum that is larger than the disk leaves nothing to use.
        let most = whole.checked_sub(min).filter(|most| *most > 0).unwrap_or(whole);
        all.push(Resource {
            words: Some(disk::free_of(free, min, whole)),
            severity: judgement.severity_of(&[Check::Space, Check::Disk]),
            ..bytes("Disk", whole.saturating_sub(free), (most, "disk_free_min"))
        });
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
        let setting = match settings.store {
            StoreKind::Embedded => "write_queue_max",
            StoreKind::DynamoDb => "dynamodb_requests_max",
            StoreKind::PostgreSql => "postgresql_requests_max",
        };
        all.push(count("Queue of the store", queue.length, queue.max as u64, setting));
    }
    all
}
