//! The end: no new connections, waiting endpoints answered, their stores finished, sockets closed.

use std::time::Duration;

use actix_web::dev::ServerHandle;
use actors::registry::{Count, ShutDown};
use slog::{Logger, info, warn};
use storage::Store;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep, timeout};

use super::ServeError;
use crate::http::app::App;
use crate::settings::Settings;

/// How often the end looks whether it has come.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Waits for SIGTERM or SIGINT and stops the server within `shutdown_wait_ms`.
pub(super) async fn when_told(server: ServerHandle, app: &App, settings: &Settings, log: &Logger) {
    let name = match told().await {
        Ok(name) => name,
        Err(error) => {
            warn!(log, "cannot wait for signals, stopping"; "error" => %error);
            "none"
        }
    };
    info!(log, "stopping"; "signal" => name);
    server.pause().await;
    let until = Instant::now() + Duration::from_millis(settings.shutdown_wait_ms);
    if app.registry.send(ShutDown).await.is_err() {
        warn!(log, "the registry is gone, closing connections without a word");
    }
    while is_busy(app).await && Instant::now() < until {
        sleep(LOOK_EVERY).await;
    }
    server.stop(true).await;
}

/// Lets the store finish what was queued.
pub(super) async fn close(
    store: &dyn Store,
    settings: &Settings,
    log: &Logger,
) -> Result<(), ServeError> {
    let wait = Duration::from_millis(settings.shutdown_wait_ms);
    timeout(wait, store.close()).await.map_err(|_| ServeError::Unfinished)??;
    info!(log, "stopped");
    Ok(())
}

async fn is_busy(app: &App) -> bool {
    let connected = app.registry.send(Count).await.unwrap_or(0);
    connected > 0 || app.endpoints.in_flight() > 0
}

async fn told() -> std::io::Result<&'static str> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    })
}
