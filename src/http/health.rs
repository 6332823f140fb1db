//! Dockerflow's paths: is the server alive, and do the things it depends on work?

use std::time::Duration;

use actix_web::web::Data;
use actix_web::{HttpResponse, ResponseError};
use actors::broadcasts::BroadcastView;
use actors::registry::CountConnections;
use serde_json::json;
use slog::warn;
use tokio::time::timeout;

use super::PushError;
use super::app::{AppState, WebSocketRole};

/// How long a dependency may take to show that it works.
const CHECK_WAIT: Duration = Duration::from_secs(2);

/// 200 where a write reaches the disk and feeds are published, and on a connection node the registry answers and
/// broadcasts are told; 503 where not.
pub(super) async fn heartbeat(node: Data<AppState>) -> HttpResponse {
    let common = &node.common;
    let store = matches!(timeout(CHECK_WAIT, common.store.check()).await, Ok(Ok(())));
    let feeds = common.feeds.is_running();
    let Some(connections) = &node.connections else {
        return match store && feeds {
            true => HttpResponse::Ok().json(json!({"status": "OK"})),
            false => {
                warn!(common.log, "the server is not healthy"; "store" => store, "feeds" => feeds);
                unhealthy(&node)
            }
        };
    };
    let broadcasts = connections.clients.broadcasts.as_ref().is_none_or(BroadcastView::is_running);
    match (store && feeds && broadcasts, connections.count().await) {
        (true, Some(count)) => {
            HttpResponse::Ok().json(json!({"status": "OK", "connections": count}))
        }
        (_, count) => {
            warn!(common.log, "the server is not healthy"; "store" => store, "registry" => count.is_some(),
                "feeds" => feeds, "broadcasts" => broadcasts);
            unhealthy(&node)
        }
    }
}

fn unhealthy(node: &AppState) -> HttpResponse {
    PushError::Unavailable { retry_after: node.common.retry_after }.error_response()
}

impl WebSocketRole {
    /// How many agents are connected; none where the registry does not answer.
    async fn count(&self) -> Option<usize> {
        timeout(CHECK_WAIT, self.clients.registry.send(CountConnections)).await.ok()?.ok()
    }
}

/// 200: the process answers. 503 from the moment it was told to stop: a load balancer is to send no more.
pub(super) async fn alive(node: Data<AppState>) -> HttpResponse {
    match node.common.draining.has_begun() {
        false => HttpResponse::Ok().json(json!({"status": "OK"})),
        true => HttpResponse::ServiceUnavailable().json(json!({"status": "draining"})),
    }
}

/// What is running.
pub(super) async fn version() -> HttpResponse {
    let version = env!("CARGO_PKG_VERSION");
    HttpResponse::Ok().json(json!({"status": "OK", "name": "kalends", "version": version}))
}
