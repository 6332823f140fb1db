//! The health checks of Dockerflow.

use std::time::Duration;

use actix_web::web::Data;
use actix_web::{HttpResponse, ResponseError};
use actors::broadcasts::BroadcastView;
use actors::registry::CountConnections;
use serde_json::json;
use slog::warn;
use storage::{COMMIT_BOUNDS_MS, CommitTimes, DiskSpace};
use tokio::time::timeout;

use super::PushError;
use super::app::AppState;

/// Maximum time for the store or the registry to answer a check.
const CHECK_WAIT: Duration = Duration::from_secs(2);

/// 200 if the store accepts writes and has space for messages, feeds are published and the ports accept
/// connections, otherwise 503. On a connection node the registry must answer and broadcasts be published too.
pub(super) async fn heartbeat(node: Data<AppState>) -> HttpResponse {
    let common = &node.common;
    let store = matches!(timeout(CHECK_WAIT, common.store.check()).await, Ok(Ok(())));
    let disk = common.store.disk_space();
    let has_space = disk.is_none_or(|disk| !disk.is_low());
    let feeds = common.feeds.is_running();
    let accepts = !common.accept_failures.are_recent();
    let (mut registry, mut broadcasts) = (true, true);
    let mut body = json!({"status": "OK"});
    if let Some(connections) = &node.connections {
        let clients = &connections.clients;
        let count = timeout(CHECK_WAIT, clients.registry.send(CountConnections)).await;
        let count = count.ok().and_then(Result::ok);
        registry = count.is_some();
        broadcasts = clients.broadcasts.as_ref().is_none_or(BroadcastView::is_running);
        body["connections"] = json!(count);
    }
    body["refused"] = common.limits.refused().filter(|(_, refused)| *refused > 0).collect();
    if let Some(DiskSpace { free_bytes, messages_refused, .. }) = disk {
        body["disk"] = json!({"free_bytes": free_bytes, "messages_refused": messages_refused});
    }
    if let Some(CommitTimes { counts, longest_ms }) = common.store.commit_times() {
        body["commits"] =
            json!({"bounds_ms": COMMIT_BOUNDS_MS, "counts": counts, "longest_ms": longest_ms});
    }
    if store && has_space && feeds && accepts && registry && broadcasts {
        return HttpResponse::Ok().json(body);
    }
    warn!(common.log, "the server is unhealthy"; "store" => store, "space" => has_space,
        "feeds" => feeds, "accepts" => accepts, "registry" => registry, "broadcasts" => broadcasts);
    PushError::Unavailable.error_response()
}

/// 200; from the start of the shutdown 503, so that a load balancer sends no more requests.
pub(super) async fn alive(node: Data<AppState>) -> HttpResponse {
    match node.common.is_draining() {
        false => HttpResponse::Ok().json(json!({"status": "OK"})),
        true => HttpResponse::ServiceUnavailable().json(json!({"status": "draining"})),
    }
}

pub(super) async fn version() -> HttpResponse {
    let version = env!("CARGO_PKG_VERSION");
    HttpResponse::Ok().json(json!({"status": "OK", "name": "kalends", "version": version}))
}
