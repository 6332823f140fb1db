//! Shutdown: no new connections, requests in progress answered, writes finished, sockets closed.
//!
//! A connection node first drains: it closes its sessions one after the other, so that their agents
//! do not all reconnect to the other nodes at once. Its ports stay open meanwhile for load balancers
//! and endpoint nodes.

use std::future::pending;
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use actix_web::web::Data;
use actors::registry::{CountConnections, ShutDown};
use slog::{Logger, info, warn};
use storage::Store;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep, timeout_at};

use super::error::ServeError;
use super::listen::{self, LAST_ANSWERS_WAIT, RunningServers};
use super::systemd;
use crate::push::app::{AppState, EndpointRole};
use crate::settings::{Role, Settings};
use crate::system::parent;

/// Interval at which open sessions and requests are counted.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Part of the time that is reserved for the last responses and for the store to close its files.
const LAST_WAIT: Duration = LAST_ANSWERS_WAIT.saturating_add(Duration::from_millis(250));

/// Minimum time for the store to finish its queue: responses depend on it.
const CLOSE_WAIT_MIN: Duration = Duration::from_secs(1);

/// Interval of the log lines during a drain.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// Time beyond `drain_s` for agents that do not read, the last responses and the store.
const DRAIN_GRACE: Duration = Duration::from_secs(2);

/// SIGTERM and SIGINT, which are caught as long as this exists.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// SIGHUP, of a server that ends with its parent too.
    hangup: Option<Signal>,
}

impl Signals {
    pub(super) fn listen(ends_with_parent: bool) -> io::Result<Self> {
        let hangup = ends_with_parent.then(|| signal(SignalKind::hangup())).transpose()?;
        let (terminate, interrupt) = (SignalKind::terminate(), SignalKind::interrupt());
        Ok(Self { terminate: signal(terminate)?, interrupt: signal(interrupt)?, hangup })
    }

    /// Waits for a signal and returns its name.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            name = abandoned(self.hangup.as_mut()) => name,
        }
    }
}

/// Waits for the end of the terminal or of the parent, if the server ends with them.
async fn abandoned(hangup: Option<&mut Signal>) -> &'static str {
    let Some(hangup) = hangup else { return pending().await };
    tokio::select! {
        _ = hangup.recv() => "SIGHUP",
        () = parent::ended() => "the end of the parent",
    }
}

/// Shuts a node down. A second signal cuts a drain or lame-duck period short.
pub(super) struct Shutdown<'a> {
    pub(super) role: Role,
    pub(super) settings: &'a Settings,
    pub(super) node: &'a AppState,
    pub(super) log: &'a Logger,
}

impl Shutdown<'_> {
    /// Serves until a signal arrives or a server ends by itself, then closes the ports. Returns the
    /// servers' result and the deadline of the store.
    pub(super) async fn serve_until_stopped(
        &self,
        mut ports: RunningServers,
        mut signals: Signals,
    ) -> (io::Result<()>, Instant) {
        tokio::select! {
            ended = ports.ended() => return (ended, Instant::now() + self.wait()),
            signal = signals.next() => info!(self.log, "stopping"; "signal" => signal),
        }
        systemd::stopping(self.log);
        // Health checks fail from now on, so that load balancers send no more.
        self.node.common.draining.store(true, Ordering::Relaxed);
        let until = match self.role {
            Role::All => Instant::now() + self.wait(),
            Role::Endpoint => self.lame_duck(&mut signals).await,
            Role::Connection => self.drain(&mut signals).await,
        };
        let closing = ports.close().await;
        self.close_all(until).await;
        (listen::ended(closing).await, until)
    }

    fn wait(&self) -> Duration {
        Duration::from_millis(self.settings.shutdown_wait_ms)
    }

    /// Keeps serving until load balancers have noticed, and returns the deadline of the store.
    async fn lame_duck(&self, signals: &mut Signals) -> Instant {
        let notice = Duration::from_secs(self.settings.drain_lame_duck_s);
        info!(self.log, "draining until load balancers have noticed"; "drain_lame_duck_s" => notice.as_secs());
        tokio::select! {
            () = sleep(notice) => {}
            signal = signals.next() => info!(self.log, "stopping at once"; "signal" => signal),
        }
        Instant::now() + self.wait()
    }

    /// Closes the sessions one after the other; pushes for the others are still delivered.
    async fn drain(&self, signals: &mut Signals) -> Instant {
        let (began, spread) = (Instant::now(), Duration::from_secs(self.settings.drain_s));
        let sessions = self.connected().await;
        info!(self.log, "closing sessions"; "sessions" => sessions, "drain_s" => spread.as_secs());
        self.close_sessions(spread).await;
        let until = tokio::select! {
            () = self.drained(began, spread) => began + spread + DRAIN_GRACE,
            signal = signals.next() => {
                info!(self.log, "closing all sessions at once"; "signal" => signal);
                Instant::now() + self.wait()
            }
        };
        let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        info!(self.log, "closed sessions"; "left" => self.connected().await, "took_ms" => took_ms);
        until
    }

    /// Waits until all sessions are closed and load balancers have noticed, at most for `spread`.
    async fn drained(&self, began: Instant, spread: Duration) {
        let notice = Duration::from_secs(self.settings.drain_lame_duck_s).min(spread);
        let mut logged_at = Instant::now();
        loop {
            let left = self.connected().await;
            let earliest = if left == 0 { notice } else { spread };
            if began.elapsed() >= earliest {
                return;
            }
            if logged_at.elapsed() >= PROGRESS_EVERY {
                logged_at = Instant::now();
                info!(self.log, "closing sessions"; "left" => left);
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Closes all sessions and waits for requests in progress, at most until `until`.
    async fn close_all(&self, until: Instant) {
        self.close_sessions(Duration::ZERO).await;
        // Waiting consumers are answered now; further writes are still published.
        self.node.common.feeds.close();
        while self.is_busy().await && Instant::now() + LAST_WAIT < until {
            sleep(LOOK_EVERY).await;
        }
    }

    async fn close_sessions(&self, spread: Duration) {
        let Some(connections) = &self.node.connections else { return };
        if connections.clients.registry.send(ShutDown { spread }).await.is_err() {
            warn!(self.log, "the registry has ended, connections are closed without a close frame");
        }
    }

    async fn connected(&self) -> usize {
        match &self.node.connections {
            Some(connections) => {
                connections.clients.registry.send(CountConnections).await.unwrap_or(0)
            }
            None => 0,
        }
    }

    async fn is_busy(&self) -> bool {
        let in_flight = |endpoints: &Data<EndpointRole>| endpoints.shared.in_flight();
        let in_flight = self.node.endpoints.as_ref().map_or(0, in_flight);
        in_flight > 0 || self.connected().await > 0
    }
}

/// Closes the store when its queue is empty, at most until `until`.
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
