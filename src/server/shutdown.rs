//! The end: no new connections, waiting endpoints answered, their stores finished, sockets closed.
//!
//! A connection node closes its sessions one after the other, so that their agents do not all come to the other nodes
//! at once. Its ports stay open meanwhile: load balancers are answered, and so are endpoint nodes.

use std::io;
use std::time::Duration;

use actix_web::web::Data;
use actors::registry::{CountConnections, ShutDown};
use slog::{Logger, info, warn};
use storage::Store;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep, timeout_at};

use super::ServeError;
use super::listen::{LAST_ANSWERS_WAIT, RunningServers};
use crate::http::app::{AppState, EndpointRole};
use crate::settings::{Role, Settings};

/// How often the end looks whether it has come.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What is kept of the time for the last answers and for the store to close its files.
const LAST_WAIT: Duration = LAST_ANSWERS_WAIT.saturating_add(Duration::from_millis(250));

/// What the store has in any case to finish what was queued: answers depend on it.
const CLOSE_WAIT_MIN: Duration = Duration::from_secs(1);

/// How often the log says how far a drain is.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// How much longer than `drain_s` a drain may take: for agents that do not read, the last answers and the store.
const DRAIN_GRACE: Duration = Duration::from_secs(2);

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

/// How a node ends. A second signal ends what takes its time.
pub(super) struct Shutdown<'a> {
    pub(super) role: Role,
    pub(super) settings: &'a Settings,
    pub(super) node: &'a AppState,
    pub(super) log: &'a Logger,
}

impl Shutdown<'_> {
    /// Serves until a signal comes, or a port ends by itself. Gives how the ports ended, and until when the store may
    /// take.
    pub(super) async fn serve_until_stopped(
        &self,
        mut ports: RunningServers,
        mut signals: Signals,
    ) -> (io::Result<()>, Instant) {
        tokio::select! {
            ended = ports.ended() => return (ended, Instant::now() + self.wait()),
            signal = signals.next() => info!(self.log, "stopping"; "signal" => signal),
        }
        // From the first moment on load balancers are told to send no more.
        self.node.common.draining.begin();
        let until = match self.role {
            Role::Serve => Instant::now() + self.wait(),
            Role::Endpoint => self.lame_duck(&mut signals).await,
            Role::Connect => self.drain(&mut signals).await,
        };
        let closing = ports.close().await;
        self.close_all(until).await;
        (closing.ended(LAST_ANSWERS_WAIT).await, until)
    }

    /// How long the end may take where nothing is to be drained.
    fn wait(&self) -> Duration {
        Duration::from_millis(self.settings.shutdown_wait_ms)
    }

    /// Load balancers take a while until they send no more.
    async fn lame_duck(&self, signals: &mut Signals) -> Instant {
        let notice = Duration::from_secs(self.settings.drain_lame_duck_s);
        info!(self.log, "serving on until load balancers have noticed"; "drain_lame_duck_s" => notice.as_secs());
        tokio::select! {
            () = sleep(notice) => {}
            signal = signals.next() => info!(self.log, "stopping at once"; "signal" => signal),
        }
        Instant::now() + self.wait()
    }

    /// Has sessions closed one after the other, while pushes for those that are left are still taken.
    async fn drain(&self, signals: &mut Signals) -> Instant {
        let (began, spread) = (Instant::now(), Duration::from_secs(self.settings.drain_s));
        let sessions = self.connected().await;
        info!(self.log, "closing sessions"; "sessions" => sessions, "drain_s" => spread.as_secs());
        self.tell_sessions(spread).await;
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

    /// Waits until no session is left and load balancers have noticed, and no longer than the drain takes.
    async fn drained(&self, began: Instant, spread: Duration) {
        let notice = Duration::from_secs(self.settings.drain_lame_duck_s).min(spread);
        let mut told_at = Instant::now();
        loop {
            let left = self.connected().await;
            let earliest = if left == 0 { notice } else { spread };
            if began.elapsed() >= earliest {
                return;
            }
            if told_at.elapsed() >= PROGRESS_EVERY {
                told_at = Instant::now();
                info!(self.log, "closing sessions"; "left" => left);
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Closes what is open by `until`, and earlier where nothing is under way.
    async fn close_all(&self, until: Instant) {
        self.tell_sessions(Duration::ZERO).await;
        // Who waits for updates is answered now; what is still written is still published.
        self.node.common.feeds.close();
        while self.is_busy().await && Instant::now() + LAST_WAIT < until {
            sleep(LOOK_EVERY).await;
        }
    }

    async fn tell_sessions(&self, spread: Duration) {
        let Some(connections) = &self.node.connections else { return };
        if connections.clients.registry.send(ShutDown { spread }).await.is_err() {
            warn!(self.log, "the registry is gone, closing connections without a word");
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
