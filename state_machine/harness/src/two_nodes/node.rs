//! One of the two nodes: its connection, its registry of one entry, and the notifications on the way to it.

use std::collections::VecDeque;
use std::sync::Arc;

use super::input::NodeName;
use crate::script::MachineState;
use crate::script::tokens::offset_text;
use crate::transcript::SessionWorld;
use state_machine::connection::{Config, ConnectionSeed, Effect, Event, PhaseName};
use state_machine::time::Span;
use state_machine::{NodeId, Time, Uaid};

pub(super) struct Node {
    pub(super) name: NodeName,
    config: Arc<Config>,
    seed: ConnectionSeed,
    /// The start of the script, from which times are counted.
    start: Time,
    /// The start and the present by the clock of this node.
    zero: Time,
    pub(super) now: Time,
    /// None before the agent connects and after a crash.
    pub(super) session: Option<SessionWorld>,
    registered: Option<Uaid>,
    /// Notifications on their way to this node, for an agent.
    pub(super) notifications: VecDeque<(Uaid, Event)>,
}

/// A notification that a connection orders for the other node.
pub(super) struct Notification {
    pub(super) to: NodeId,
    pub(super) uaid: Uaid,
    pub(super) event: Event,
}

impl Node {
    pub(super) fn new(
        name: NodeName,
        config: &Config,
        seed: ConnectionSeed,
        start: Time,
        zero: Time,
    ) -> Self {
        let config = Arc::new(Config { node: NodeId::new(name.as_str()), ..config.clone() });
        let notifications = VecDeque::new();
        Self {
            name,
            config,
            seed,
            start,
            zero,
            now: zero,
            session: None,
            registered: None,
            notifications,
        }
    }

    pub(super) fn connects(&mut self) -> Result<(), String> {
        if self.session.as_ref().is_some_and(|session| !is_closed(session)) {
            return Err(format!(
                "{0} has a connection: write `{0}.agent> <closes>` first",
                self.name
            ));
        }
        let config = Arc::clone(&self.config);
        self.session =
            Some(SessionWorld::begin(config, self.seed, [self.start, self.zero], self.now));
        Ok(())
    }

    pub(super) fn crashes(&mut self) {
        (self.session, self.registered) = (None, None);
    }

    /// The connection, for an input that needs one.
    pub(super) fn connection(&mut self) -> Result<&mut SessionWorld, String> {
        let missing =
            || format!("{0} has no connection: write `{0}.agent> <connects>` first", self.name);
        self.session.as_mut().ok_or_else(missing)
    }

    /// The next notification. It reaches a connection if the agent is registered here.
    pub(super) fn next_notification(&mut self) -> Result<Option<Event>, String> {
        let next = self.notifications.pop_front();
        let (uaid, event) =
            next.ok_or_else(|| format!("no notification is on its way to {}", self.name))?;
        Ok(Some(event).filter(|_| self.registered == Some(uaid)))
    }

    /// Notes effects that concern this node, and returns all as lines, with what is on its way to the other node.
    pub(super) fn execute(&mut self, effects: &[Effect]) -> (Vec<String>, Vec<Notification>) {
        let mut notifications = Vec::new();
        for effect in effects {
            match effect {
                Effect::Register { uaid } => self.registered = Some(*uaid),
                Effect::Deregister { uaid } if self.registered == Some(*uaid) => {
                    self.registered = None;
                }
                Effect::NotifyPreviousNode { node, uaid, connected_at } => {
                    let event = Event::ConnectedElsewhere { connected_at: *connected_at };
                    notifications.push(Notification { to: node.clone(), uaid: *uaid, event });
                }
                _ => {}
            }
        }
        let lines = self.session.iter().flat_map(|session| session.lines(effects));
        (lines.map(|line| format!("{}.{line}", self.name)).collect(), notifications)
    }

    pub(super) fn check_wait(&self, span: Span) -> Result<(), String> {
        self.session.as_ref().map_or(Ok(()), |session| {
            session.check_wait(span).map_err(|reason| format!("{}: {reason}", self.name))
        })
    }

    pub(super) fn state(&self) -> Option<MachineState> {
        Some(self.session.as_ref()?.state(self.name.as_str()))
    }

    /// The notifications on their way, for a trace.
    pub(super) fn post(&self) -> impl Iterator<Item = String> {
        self.notifications.iter().map(|(_, event)| match event {
            Event::ConnectedElsewhere { connected_at } => {
                let at = offset_text(*connected_at, self.start);
                format!("on its way to {}: connected elsewhere at {at}", self.name)
            }
            _ => format!("on its way to {}: message stored", self.name),
        })
    }
}

fn is_closed(session: &SessionWorld) -> bool {
    session.connection().phase() == PhaseName::Closed
}
