//! Dockerflow's paths: is the server alive, and do the things it depends on work?

use std::time::Duration;

use actix_web::web::Data;
use actix_web::{HttpResponse, ResponseError};
use actors::broadcasts::BroadcastView;
use actors::registry::Count;
use serde_json::json;
use slog::warn;
use tokio::time::timeout;

use super::PushError;
use super::app::App;

/// How long a dependency may take to show that it works.
const CHECK_WAIT: Duration = Duration::from_secs(2);

/// 200 where a write reaches the disk, the registry answers, feeds are published and broadcasts told; 503 where not.
pub(super) async fn heartbeat(app: Data<App>) -> HttpResponse {
    let store = matches!(timeout(CHECK_WAIT, app.store.check()).await, Ok(Ok(())));
    let connections = match timeout(CHECK_WAIT, app.registry.send(Count)).await {
        Ok(Ok(connections)) => Some(connections),
        Ok(Err(_)) | Err(_) => None,
    };
    let feeds = app.feeds.is_running();
    let broadcasts = app.clients.broadcasts.as_ref().is_none_or(BroadcastView::is_running);
    match (store && feeds && broadcasts, connections) {
        (true, Some(connections)) => {
            HttpResponse::Ok().json(json!({"status": "OK", "connections": connections}))
        }
        (_, connections) => {
            let registry = connections.is_some();
            warn!(app.log, "the server is not healthy";
                "store" => store, "registry" => registry, "feeds" => feeds, "broadcasts" => broadcasts);
            PushError::BackOff { retry_after: app.limits.retry_after }.error_response()
        }
    }
}

/// 200: the process answers.
pub(super) async fn alive() -> HttpResponse {
    HttpResponse::Ok().json(json!({"status": "OK"}))
}

/// What is running.
pub(super) async fn version() -> HttpResponse {
    let version = env!("CARGO_PKG_VERSION");
    HttpResponse::Ok().json(json!({"status": "OK", "name": "kalends", "version": version}))
}
