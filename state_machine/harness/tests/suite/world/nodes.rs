//! The nodes: connections are stepped, and their effects executed.

use harness::transcript::TranscriptWriter;
use state_machine::connection::{Effect, Event};
use state_machine::wire::ServerMessage;
use state_machine::{ConnectionId, Span, Time};

use super::connection::ClientConnection;
use super::notifications::Notification;
use super::{BEGIN, SyntaxError, World};

impl World {
    pub(super) fn deadline(&self) -> Option<(Time, usize)> {
        let connections = self.connections.iter().enumerate();
        let deadlines = connections.filter_map(|(at, connection)| {
            let (deadline, _) = connection.watched.connection.deadline()?;
            Some((deadline + self.nodes[connection.node].behind, at))
        });
        deadlines.min()
    }

    /// Any event may overtake a mailbox message, but it is handled within a second. So an agent that is there answers a ping
    /// in time.
    pub(super) fn time_passes(&mut self, until: Time) -> Result<(), SyntaxError> {
        const DEADLINES_MAX: usize = 5000;
        for _ in 0..DEADLINES_MAX {
            let due = self.deadline().filter(|(at, _)| *at <= until);
            let next = due.map_or(until, |(at, _)| at);
            let has_mail = self.connections.iter().any(|connection| !connection.mail.is_empty());
            if has_mail && next >= self.now + Span::from_secs(1) {
                self.deliver_mail()?;
                continue;
            }
            self.now = self.now.max(next);
            let Some((_, connection)) = due else { return Ok(()) };
            self.step(connection, &Event::TimePassed)?;
        }
        Err(format!("deadlines never end before {until:?}"))
    }

    pub(super) fn deliver_mail(&mut self) -> Result<(), SyntaxError> {
        for connection in 0..self.connections.len() {
            while let Some(event) = self.connections[connection].mail.pop_front() {
                self.step(connection, &event)?;
            }
        }
        Ok(())
    }

    /// Steps a connection and executes its effects.
    pub(super) fn step(&mut self, connection: usize, event: &Event) -> Result<(), SyntaxError> {
        let now = self.now - self.nodes[self.connections[connection].node].behind;
        let effects = {
            let ClientConnection { watched, node, .. } = &mut self.connections[connection];
            let writer = TranscriptWriter { config: &self.nodes[*node].config, start: BEGIN };
            self.log.push(format!("{connection}  {}", writer.event(event, BEGIN, now)));
            let effects = watched.step(now, event).map_err(|violation| violation.to_string())?;
            let texts = effects.iter().map(|effect| writer.effect(effect, now));
            self.log.extend(texts.map(|text| format!("{connection}    {text}")));
            effects
        };
        self.watch(connection, event, &effects)?;
        for effect in &effects {
            if let Effect::Send(message) = effect {
                self.connections[connection].sent(message)?;
            }
        }
        effects.into_iter().try_for_each(|effect| self.execute(connection, effect))
    }

    pub(super) fn execute(&mut self, connection: usize, effect: Effect) -> Result<(), SyntaxError> {
        let id = ConnectionId(connection as u64);
        let node = self.connections[connection].node;
        match effect {
            Effect::Send(message) if self.connections[connection].is_heard => {
                self.agent_receives(connection, &message)?;
            }
            Effect::Ping if self.connections[connection].is_heard => {
                self.connections[connection].mail.push_back(Event::PeerActive);
            }
            Effect::Send(_) | Effect::Ping => {}
            Effect::SubmitStoreOp { op, operation } => {
                self.operations_given += 1;
                let number = self.operations_given;
                self.connections[connection].submitted(op, operation, number, &mut self.store);
            }
            Effect::AnswerPush { push, answer, message } => {
                self.push_answered(connection, push, answer, &message);
            }
            Effect::Register { uaid } => {
                self.connections[connection].registered = None;
                if let Some(older) = self.nodes[node].registry.insert(uaid, id, ()) {
                    self.connections[older.connection.0 as usize].mail.push_back(Event::Replaced);
                }
            }
            Effect::Deregister { uaid } => self.nodes[node].registry.remove(uaid, id),
            Effect::NotifyPreviousNode { node, uaid, connected_at } => {
                self.post.notifications.push(Notification { to: node, uaid, connected_at });
            }
            // This agent subscribes to no broadcasts; `tests/broadcasts.rs` has one that does.
            Effect::SubscribeBroadcasts { .. } | Effect::UnsubscribeBroadcasts => {}
            Effect::Close(_) => {
                self.connections[connection].is_heard = false;
                if self.agent.connection == Some(connection) {
                    self.agent.connection = None;
                }
            }
        }
        Ok(())
    }

    /// An agent with channels keeps its uaid. On an abandoned connection it receives messages only.
    pub(super) fn agent_receives(
        &mut self,
        connection: usize,
        message: &ServerMessage,
    ) -> Result<(), SyntaxError> {
        let is_notification = matches!(message, ServerMessage::Notification(_));
        if !is_notification && self.agent.connection != Some(connection) {
            return Ok(());
        }
        let channels = self.agent.channels.clone();
        match self.agent.receives(message) {
            Some(lost) if !channels.is_empty() => {
                Err(format!("{lost} lost its uaid and {channels:?}"))
            }
            _ => Ok(()),
        }
    }
}
