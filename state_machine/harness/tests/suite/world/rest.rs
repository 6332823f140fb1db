//! The end of a history, and its final checks.

use std::collections::BTreeSet;

use harness::invariants::CheckedConnection;
use state_machine::connection::{Event, PhaseName};
use state_machine::delivery::Outcome;
use state_machine::wire::ClientMessage;
use state_machine::{Message, MessageId, Span, Urgency};

use super::op::Parting;
use super::push::Push;
use super::{SyntaxError, World, chid};

impl World {
    /// Executes every operation in progress. The agent then receives the remaining messages, here
    /// and on a last connection.
    pub(crate) fn comes_to_rest(&mut self) -> Result<(), SyntaxError> {
        self.log.push("== the end".to_owned());
        self.go_all()?;
        self.only_the_last_is_live()?;
        self.rests_in_place()?;
        self.everybody_leaves()?;
        if self.agent.uaid.is_none() {
            return Ok(());
        }
        self.connect(0, Parting::HangUp)?;
        self.drain()?;
        self.promises_are_kept()?;
        self.nothing_is_left()?;
        self.commands_are_served()
    }

    /// A connected agent that acks receives every message, without waiting for the periodic recheck
    /// of storage.
    fn rests_in_place(&mut self) -> Result<(), SyntaxError> {
        let is_at_rest = self.rests()? && {
            self.say(ClientMessage::Urgency { min: Urgency::VeryLow })?;
            self.rests()?
        };
        if is_at_rest && !self.is_nudge_lost { self.promises_are_kept() } else { Ok(()) }
    }

    /// Gives the connection time and acks. Returns whether the record still leads to it.
    fn rests(&mut self) -> Result<bool, SyntaxError> {
        const PATIENCE: Span = Span::from_secs(130);
        let until = self.now + PATIENCE;
        loop {
            self.go_all()?;
            if !self.is_record_ours() {
                return Ok(false);
            } else if !self.agent.unacked.is_empty() {
                self.ack(None)?;
            } else if let Some((at, _)) = self.deadline().filter(|(at, _)| *at <= until) {
                self.time_passes(at)?;
            } else {
                return self.commands_are_answered().map(|()| true);
            }
        }
    }

    fn commands_are_answered(&self) -> Result<(), SyntaxError> {
        let connection =
            self.agent.connection.map(|connection| &self.connections[connection].watched);
        match connection.map_or(0, CheckedConnection::unanswered_commands) {
            0 => Ok(()),
            commands => Err(format!("{commands} commands have no answer")),
        }
    }

    /// Whether the agent's record leads to its connection, and hello was answered there.
    fn is_record_ours(&self) -> bool {
        let record = self.agent.uaid.and_then(|uaid| self.store.records.get(&uaid));
        let found = record.and_then(|record| self.find(record.node.as_ref()?, record.uaid));
        self.agent.is_greeted && self.agent.connection.is_some() && found == self.agent.connection
    }

    fn everybody_leaves(&mut self) -> Result<(), SyntaxError> {
        self.agent.connection = None;
        for connection in 0..self.connections.len() {
            self.connections[connection].is_heard = false;
            self.step(connection, &Event::SocketClosed)?;
        }
        self.go_all()?;
        match self.pushes.iter().find(|push| push.outcome.is_none()) {
            Some(push) => Err(format!("{} has no answer, with nothing under way", push.message.id)),
            None => Ok(()),
        }
    }

    /// An agent may send several commands at once.
    fn commands_are_served(&mut self) -> Result<(), SyntaxError> {
        for channel in [0, 1, 0] {
            self.say(ClientMessage::Register { chid: chid(channel), key: None })?;
        }
        self.drain()?;
        self.commands_are_answered()
    }

    fn drain(&mut self) -> Result<(), SyntaxError> {
        const ROUNDS_MAX: usize = 500;
        for _ in 0..ROUNDS_MAX {
            self.go_all()?;
            let Some(connection) = self.agent.connection else {
                return Err("the last connection was closed".to_owned());
            };
            let is_ready =
                self.connections[connection].watched.connection.phase() == PhaseName::Ready;
            if !self.agent.unacked.is_empty() {
                self.ack(None)?;
            } else if is_ready && self.under_way().is_empty() {
                return Ok(());
            } else if let Some((at, _)) = self.deadline() {
                self.time_passes(at)?;
            }
        }
        Err("the agent is never done".to_owned())
    }

    fn promises_are_kept(&self) -> Result<(), SyntaxError> {
        let is_ours = |push: &&Push| Some(push.uaid) == self.agent.uaid;
        let is_wanted = |push: &&Push| !self.agent.given_up.contains(&push.message.chid);
        for push in self.pushes.iter().filter(is_ours).filter(is_wanted) {
            if push.is_promised() && !self.was_delivered(push) {
                return Err(format!("{} is {:?} and lost", push.message.id, push.outcome));
            }
        }
        Ok(())
    }

    /// Whether the agent received the message, or one of its topic that was not answered before it was pushed, or a higher
    /// version of its channel.
    fn was_delivered(&self, push: &Push) -> bool {
        let is_as_good = |other: &&Push| {
            let Message { id, chid, topic, .. } = &other.message;
            let is_earlier = other.ended_after.is_some_and(|ended| ended < push.began_after);
            let is_newer = topic.is_some()
                && (chid, topic) == (&push.message.chid, &push.message.topic)
                && !is_earlier
                && other.was_stored;
            id.covers(push.message.id) || is_newer
        };
        let mut as_good = self.pushes.iter().filter(is_as_good);
        as_good.any(|other| self.agent.got.contains_key(&other.message.id))
    }

    fn nothing_is_left(&self) -> Result<(), SyntaxError> {
        let Some(uaid) = self.agent.uaid else { return Ok(()) };
        let may_stray: BTreeSet<MessageId> = self
            .pushes
            .iter()
            .filter(|push| {
                push.may_stray || !push.is_lasting() || push.outcome == Some(Outcome::Unavailable)
            })
            .map(|push| push.message.id)
            .collect();
        let left = self.store.rows(uaid).find(|(_, id)| !may_stray.contains(id));
        if let Some((month, id)) = left {
            return Err(format!("{id} is left in {month}"));
        }
        match self.store.records.get(&uaid).and_then(|record| record.oldmonth) {
            Some(month) => Err(format!("the move from {month} is not finished")),
            None => Ok(()),
        }
    }
}
