//! One user agent's WebSocket session.
//!
//! ```text
//!   AwaitingHello ──hello, new agent──────────────────────────────────────────────┐
//!        │ hello with a uaid                                                      │
//!        ▼                  the record's month is this month                      ▼
//!   Identified ────────────────────────────────────────────────────────────────► Ready
//!        │ it is an older one                    ▲                                ▲
//!        ▼                                       │ an unfinished move             │ old month empty,
//!   DrainingOldMonth ──all acked──► CopyingChids │ goes on                        │ oldmonth removed
//!                                        │       ▼                                │
//!                                        └─► UpdatingRouter ──────────────────────┘
//!   any of them ──► Closed
//! ```
//!
//! [`Connection::step`] is total: every event in every phase gives effects, never an error.
//! [`Connection::deadline`] says when it wants to be stepped next if nothing happens, and why.
//! `docs/state-machine.md` has the whole table, drawn from this code.

mod awaiting_hello;
mod broadcast_subscriptions;
mod closed;
mod config;
mod copying_chids;
mod draining_old_month;
mod effect;
mod event;
mod identified;
mod pending_deletes;
mod pending_ops;
mod phase;
mod ready;
mod session;
mod storage_scan;
mod unacked_window;
mod updating_router;

pub use config::{Config, ConnectionSeed, Limits};
pub use effect::{CloseReason, Effect, Effects, PushAnswer};
pub use event::Event;
pub use phase::PhaseName;

use std::fmt;
use std::sync::Arc;

use awaiting_hello::AwaitingHello;
use closed::Closed;
use phase::Phase;

use crate::time::Time;

/// A connection, from the accepted socket to its close.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Connection {
    config: Arc<Config>,
    seed: ConnectionSeed,
    opened_at: Time,
    last_heard: Time,
    /// When a silent peer was pinged; none since it was last heard.
    pinged_at: Option<Time>,
    phase: Phase,
}

/// What a deadline is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wait {
    /// For the first message.
    Hello,
    /// For an ack.
    Ack,
    /// For the old month's acks.
    Drain,
    /// For a sign of life.
    Keepalive,
    /// For the end of the session.
    SessionEnd,
    /// For the next look into storage.
    Recheck,
    /// For giving an order again that failed.
    Retry,
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hello => "hello timeout",
            Self::Ack => "ack wait",
            Self::Drain => "drain wait",
            Self::Keepalive => "keepalive",
            Self::SessionEnd => "session end",
            Self::Recheck => "storage recheck",
            Self::Retry => "store retry",
        })
    }
}

/// What every step is given besides the event.
struct StepContext<'a> {
    now: Time,
    config: &'a Config,
    seed: ConnectionSeed,
    out: &'a mut Effects,
}

impl Connection {
    /// A socket was accepted at `now`.
    pub fn new(config: Arc<Config>, seed: ConnectionSeed, now: Time) -> Self {
        let phase = Phase::AwaitingHello(AwaitingHello::default());
        Self { config, seed, opened_at: now, last_heard: now, pinged_at: None, phase }
    }

    /// Takes one event in and says what to do.
    pub fn step(&mut self, now: Time, event: Event) -> Effects {
        let mut out = Effects::new();
        if event.is_from_peer() {
            self.last_heard = now;
            self.pinged_at = None;
        }
        let config = Arc::clone(&self.config);
        let mut cx = StepContext { now, config: &config, seed: self.seed, out: &mut out };
        let phase = std::mem::replace(&mut self.phase, Phase::Closed(Closed));
        let phase = match event {
            Event::StoreAnswered { op, answer } => phase.complete_store_op(op, answer, &mut cx),
            event => phase.on_event(event, &mut cx),
        };
        self.phase = self.watch_peer(phase, &mut cx).advance(&mut cx);
        out
    }

    /// When [`Event::TimePassed`] is due, and what for.
    pub fn deadline(&self) -> Option<(Time, Wait)> {
        let limits = &self.config.limits;
        match &self.phase {
            Phase::Closed(_) => None,
            Phase::AwaitingHello(_) => Some((self.opened_at + limits.hello_timeout, Wait::Hello)),
            phase => {
                let keepalive = match self.pinged_at {
                    None => self.last_heard + limits.keepalive_interval,
                    Some(pinged_at) => pinged_at + limits.keepalive_grace,
                };
                let own = [(keepalive, Wait::Keepalive), (self.session_end(), Wait::SessionEnd)];
                own.into_iter().chain(phase.deadline(&self.config)).min()
            }
        }
    }

    /// Which phase it is in.
    pub fn phase(&self) -> PhaseName {
        self.phase.name()
    }

    /// How many messages were sent and not acked.
    pub fn unacked(&self) -> usize {
        self.phase.unacked()
    }

    fn session_end(&self) -> Time {
        self.opened_at + self.seed.with_jitter(self.config.limits.session_max)
    }

    /// Ends connections that are silent or too old. Deadlines are compared with now, never counted:
    /// an actor may have stood still.
    fn watch_peer(&mut self, phase: Phase, cx: &mut StepContext<'_>) -> Phase {
        let limits = &cx.config.limits;
        match (&phase, self.pinged_at) {
            (Phase::Closed(_), _) => phase,
            (Phase::AwaitingHello(_), _) if self.opened_at + limits.hello_timeout <= cx.now => {
                phase.close(CloseReason::HelloTimeout, cx)
            }
            (Phase::AwaitingHello(_), _) => phase,
            _ if self.session_end() <= cx.now => phase.close(CloseReason::SessionEnded, cx),
            (_, Some(pinged_at)) if pinged_at + limits.keepalive_grace <= cx.now => {
                phase.close(CloseReason::Silent, cx)
            }
            (_, None) if self.last_heard + limits.keepalive_interval <= cx.now => {
                self.pinged_at = Some(cx.now);
                cx.out.push(Effect::Ping);
                phase
            }
            _ => phase,
        }
    }
}
