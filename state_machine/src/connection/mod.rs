//! One user agent's WebSocket session.
//!
//! ```text
//!   AwaitingHello ──hello, new agent──────────────────────────────────────────────────────► Ready
//!        │ hello with a uaid                                                                  ▲ ▲
//!        ▼                        the record's month is this month                            │ │
//!   Identified ───────────────────────────────────────────────────────────────────────────────┘ │
//!        │ an earlier month  └──an unfinished move──────────┐                                   │
//!        ▼                                                  ▼                                   │
//!   DrainingOldMonth ──► CopyingChids ──► WritingRecord ──► DrainingAgain ──all acked──┐        │
//!                                            │                 │ time is up             ▼        │
//!                                            │                 ▼                  ClearingOldMonth
//!                                            └─unacked──► AwaitingDeletes ──► MovingMessages ──┘▲
//!                                                                                    └──────────┘
//!   each of them ──► Closed
//! ```
//!
//! The phases are *awaiting hello*, *open* with a session and its stage, and *closed*. `docs/state-machine.md` has the
//! table of all transitions, rendered from this code.
//!
//! [`Connection::step`] is total: every event in every phase gives effects, never an error.
//! [`Connection::deadline`] returns the time of the next step if no event arrives before, and its reason.

mod awaiting_hello;
mod closed;
mod config;
mod effect;
mod event;
mod phase;
mod phase_name;
mod session;
mod stage;
mod step;

pub use config::{Config, ConnectionSeed, Limits};
pub use effect::{CloseReason, Effect, Effects, PushAnswer};
pub use event::Event;
pub use phase_name::PhaseName;
pub use step::{UnackedMessage, Wait};

use std::sync::Arc;

use awaiting_hello::AwaitingHello;
use phase::Phase;
use session::UnackedWindow;
use step::StepContext;

use crate::time::Time;
use crate::wire::ClientMessage;

/// A connection, from the accepted socket to its close.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Connection {
    config: Arc<Config>,
    seed: ConnectionSeed,
    opened_at: Time,
    peer: Peer,
    phase: Phase,
}

/// The last sign of life of a peer, or the ping that it has not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Peer {
    HeardAt(Time),
    PingedAt(Time),
}

/// When a driver steps [`Event::BroadcastsChanged`] because of another event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BroadcastsDue {
    /// Before the event: its answer contains the broadcasts.
    Before,
    /// Right after the event, as a message of its own.
    After,
}

impl Connection {
    /// A connection whose socket was accepted at `now`.
    pub fn new(config: Arc<Config>, seed: ConnectionSeed, now: Time) -> Self {
        let phase = Phase::AwaitingHello(AwaitingHello::default());
        Self { config, seed, opened_at: now, peer: Peer::HeardAt(now), phase }
    }

    /// Processes one event. The effects must be executed in their order.
    pub fn step(&mut self, now: Time, event: Event) -> Effects {
        let mut out = Effects::new();
        if event.is_from_peer() {
            self.peer = Peer::HeardAt(now);
        }
        let config = Arc::clone(&self.config);
        let mut cx = StepContext { now, config: &config, seed: self.seed, out: &mut out };
        let phase = std::mem::replace(&mut self.phase, Phase::Closed).on_event(event, &mut cx);
        self.phase = self.watch_peer(phase, &mut cx).advance(&mut cx);
        out
    }

    /// Whether `event`, which is stepped next, requires a message with the broadcasts. If so, a
    /// driver that has broadcasts also steps [`Event::BroadcastsChanged`].
    pub fn broadcasts_due(&self, event: &Event) -> Option<BroadcastsDue> {
        let Event::MessageReceived(message) = event else { return None };
        match (&self.phase, message) {
            (Phase::AwaitingHello(_), ClientMessage::Hello { broadcasts, .. }) => {
                (!broadcasts.is_empty()).then_some(BroadcastsDue::Before)
            }
            (Phase::Open(_), ClientMessage::BroadcastSubscribe { broadcasts }) => {
                (!broadcasts.is_empty()).then_some(BroadcastsDue::After)
            }
            _ => None,
        }
    }

    /// When [`Event::TimePassed`] is due, and why.
    pub fn deadline(&self) -> Option<(Time, Wait)> {
        self.deadlines().min()
    }

    /// Everything that the connection waits for, in no order.
    pub fn deadlines(&self) -> impl Iterator<Item = (Time, Wait)> {
        let limits = &self.config.limits;
        let (own, of_session) = match &self.phase {
            Phase::Closed => ([None; 2], None),
            Phase::AwaitingHello(_) => {
                ([Some((self.opened_at + limits.hello_timeout, Wait::Hello)), None], None)
            }
            Phase::Open(open) => {
                let keepalive = match self.peer {
                    Peer::HeardAt(at) => at + limits.keepalive_interval,
                    Peer::PingedAt(at) => at + limits.keepalive_grace,
                };
                let own = [(keepalive, Wait::Keepalive), (self.session_end(), Wait::SessionEnd)];
                (own.map(Some), Some(open.deadlines(limits)))
            }
        };
        own.into_iter().chain(of_session.into_iter().flatten()).flatten()
    }

    /// The name of its phase; of an open connection, of its stage.
    pub fn phase(&self) -> PhaseName {
        self.phase.name()
    }

    /// How many messages were sent and not acked.
    pub fn unacked(&self) -> usize {
        self.phase.window().map_or(0, UnackedWindow::len)
    }

    /// When the oldest message was sent that waits for its ack and is not overdue.
    pub fn oldest_unacked(&self) -> Option<Time> {
        self.phase.window().and_then(UnackedWindow::oldest_sent_at)
    }

    /// How many messages have waited for their ack for more than `ack_wait`.
    pub fn overdue(&self) -> usize {
        self.phase.window().map_or(0, UnackedWindow::overdue_len)
    }

    /// The unacked messages: first those that are not overdue, in the order of sending.
    pub fn unacked_messages(&self) -> Vec<UnackedMessage> {
        self.phase.window().into_iter().flat_map(UnackedWindow::messages).collect()
    }

    fn session_end(&self) -> Time {
        self.opened_at + self.seed.with_jitter(self.config.limits.session_max)
    }

    /// Pings a silent peer, and closes a connection that stays silent or is too old. Deadlines are compared with `now`,
    /// never counted: an actor may have been suspended.
    fn watch_peer(&mut self, phase: Phase, cx: &mut StepContext<'_>) -> Phase {
        let limits = &cx.config.limits;
        match (&phase, self.peer) {
            (Phase::Closed, _) => phase,
            (Phase::AwaitingHello(_), _) if self.opened_at + limits.hello_timeout <= cx.now => {
                phase.close(CloseReason::HelloTimeout, cx)
            }
            (Phase::AwaitingHello(_), _) => phase,
            _ if self.session_end() <= cx.now => phase.close(CloseReason::SessionEnded, cx),
            (_, Peer::PingedAt(at)) if at + limits.keepalive_grace <= cx.now => {
                phase.close(CloseReason::Silent, cx)
            }
            (_, Peer::HeardAt(at)) if at + limits.keepalive_interval <= cx.now => {
                self.peer = Peer::PingedAt(cx.now);
                cx.out.push(Effect::Ping);
                phase
            }
            _ => phase,
        }
    }
}
