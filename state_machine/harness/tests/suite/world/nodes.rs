//! The nodes: connections are stepped, and their effects executed.

use harness::transcript::TranscriptWriter;
use state_machine::connection::{Effect, Event};
use state_machine::wire::ServerMessage;
use state_machine::{ConnectionId, Span, Time};

use super::letters::Letter;
use super::line::Line;
use super::{BEGIN, SyntaxError, World};

impl World {
    pub(super) fn deadline(&self) -> Option<(Time, usize)> {
        let lines = self.lines.iter().enumerate();
        let deadlines = lines.filter_map(|(at, line)| {
            let (deadline, _) = line.watched.connection.deadline()?;
            Some((deadline + self.nodes[line.node].behind, at))
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
            let has_mail = self.lines.iter().any(|line| !line.mail.is_empty());
            if has_mail && next >= self.now + Span::from_secs(1) {
                self.deliver_mail()?;
                continue;
            }
            self.now = self.now.max(next);
            let Some((_, line)) = due else { return Ok(()) };
            self.step(line, &Event::TimePassed)?;
        }
        Err(format!("deadlines never end before {until:?}"))
    }

    pub(super) fn deliver_mail(&mut self) -> Result<(), SyntaxError> {
        for line in 0..self.lines.len() {
            while let Some(event) = self.lines[line].mail.pop_front() {
                self.step(line, &event)?;
            }
        }
        Ok(())
    }

    /// Steps a connection and executes its effects.
    pub(super) fn step(&mut self, line: usize, event: &Event) -> Result<(), SyntaxError> {
        let now = self.now - self.nodes[self.lines[line].node].behind;
        let effects = {
            let Line { watched, node, .. } = &mut self.lines[line];
            let writer = TranscriptWriter { config: &self.nodes[*node].config, start: BEGIN };
            self.log.push(format!("{line}  {}", writer.event(event, BEGIN, now)));
            let effects = watched.step(now, event).map_err(|violation| violation.to_string())?;
            let lines = effects.iter().map(|effect| writer.effect(effect, now));
            self.log.extend(lines.map(|text| format!("{line}    {text}")));
            effects
        };
        self.watch(line, event, &effects)?;
        for effect in &effects {
            if let Effect::Send(message) = effect {
                self.lines[line].sent(message)?;
            }
        }
        effects.into_iter().try_for_each(|effect| self.carry_out(line, effect))
    }

    pub(super) fn carry_out(&mut self, line: usize, effect: Effect) -> Result<(), SyntaxError> {
        let connection = ConnectionId(line as u64);
        let node = self.lines[line].node;
        match effect {
            Effect::Send(message) if self.lines[line].is_heard => {
                self.agent_hears(line, &message)?;
            }
            Effect::Ping if self.lines[line].is_heard => {
                self.lines[line].mail.push_back(Event::PeerActive);
            }
            Effect::Send(_) | Effect::Ping => {}
            Effect::SubmitStoreOp { op, order } => {
                self.orders_given += 1;
                let number = self.orders_given;
                self.lines[line].ordered(op, order, number, &mut self.store);
            }
            Effect::AnswerPush { push, answer, message } => {
                self.push_answered(line, push, answer, &message);
            }
            Effect::Register { uaid } => {
                self.lines[line].registered = None;
                if let Some(older) = self.nodes[node].registry.insert(uaid, connection, ()) {
                    self.lines[older.connection.0 as usize].mail.push_back(Event::Replaced);
                }
            }
            Effect::Deregister { uaid } => self.nodes[node].registry.remove(uaid, connection),
            Effect::NotifyPreviousNode { node, uaid, connected_at } => {
                self.post.letters.push(Letter { to: node, uaid, connected_at });
            }
            // This agent subscribes to no broadcasts; `tests/broadcasts.rs` has one that does.
            Effect::SubscribeBroadcasts { .. } | Effect::UnsubscribeBroadcasts => {}
            Effect::Close(_) => {
                self.lines[line].is_heard = false;
                if self.agent.line == Some(line) {
                    self.agent.line = None;
                }
            }
        }
        Ok(())
    }

    /// An agent with channels keeps its uaid. On an abandoned connection it receives messages only.
    pub(super) fn agent_hears(
        &mut self,
        line: usize,
        message: &ServerMessage,
    ) -> Result<(), SyntaxError> {
        let is_notification = matches!(message, ServerMessage::Notification(_));
        if !is_notification && self.agent.line != Some(line) {
            return Ok(());
        }
        let channels = self.agent.channels.clone();
        match self.agent.hears(message) {
            Some(lost) if !channels.is_empty() => {
                Err(format!("{lost} lost its uaid and {channels:?}"))
            }
            _ => Ok(()),
        }
    }
}
