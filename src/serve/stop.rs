//! The end: no new connections, waiting endpoints answered, their stores finished, sockets closed.

use std::io;
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actors::registry::{Count, ShutDown};
use slog::{Logger, info, warn};
use storage::Store;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep, timeout_at};

use super::ServeError;
use super::listen::LAST_ANSWERS_WAIT_S;
use crate::http::app::App;

/// How often the end looks whether it has come.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What is kept of the time for the last answers and for the store to close its files.
const LAST_WAIT: Duration = Duration::from_millis(LAST_ANSWERS_WAIT_S * 1000 + 250);

/// What the store has in any case to finish what was queued: answers depend on it.
const CLOSE_WAIT_MIN: Duration = Duration::from_secs(1);

/// The signals that end a server. They are caught from the moment this exists.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        Ok(Self { terminate, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for one; gives its name.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// Stops the server by `until`, and earlier where nothing is under way.
pub(super) async fn stop(server: ServerHandle, app: &App, until: Instant, log: &Logger) {
    server.pause().await;
    if app.registry.send(ShutDown).await.is_err() {
        warn!(log, "the registry is gone, closing connections without a word");
    }
    // Who waits for updates is answered now; what is still written is still published.
    app.feeds.close();
    while is_busy(app).await && Instant::now() + LAST_WAIT < until {
        sleep(LOOK_EVERY).await;
    }
    server.stop(true).await;
}

/// Lets the store finish what was queued.
pub(super) async fn close(
    store: &dyn Store,
    until: Instant,
    log: &Logger,
) -> Result<(), ServeError> {
    let until = until.max(Instant::now() + CLOSE_WAIT_MIN);
    timeout_at(until, store.close()).await.map_err(|_| ServeError::Unfinished)??;
    info!(log, "stopped");
    Ok(())
}

async fn is_busy(app: &App) -> bool {
    let connected = app.registry.send(Count).await.unwrap_or(0);
    connected > 0 || app.endpoints.in_flight() > 0
}
