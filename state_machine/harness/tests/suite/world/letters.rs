//! What nodes tell each other of an agent that moved, and who is live because of it.

use std::collections::BTreeMap;

use state_machine::connection::{CloseReason, Effect, Event};
use state_machine::store::{RegisterResult, StoreAnswer};
use state_machine::{NodeBinding, NodeId, RouterRecord, Time, Uaid};

use super::op::How;
use super::{SyntaxError, World};

/// A node tells another that an agent is connected elsewhere since then.
#[derive(Debug, Clone)]
pub(crate) struct Letter {
    pub(crate) to: NodeId,
    pub(crate) uaid: Uaid,
    pub(crate) connected_at: Time,
}

/// What nodes wrote to each other, and what they should have.
#[derive(Debug, Default)]
pub(crate) struct Post {
    /// On their way. They may be overtaken by anything, for as long as it takes.
    pub(crate) letters: Vec<Letter>,
    /// The last move of an agent away from each node.
    moves: BTreeMap<(NodeId, Uaid), Move>,
    /// Whether an order to clear a node was not done.
    pub(crate) is_clear_lost: bool,
}

#[derive(Debug)]
struct Move {
    at: Time,
    is_told: bool,
}

impl Post {
    /// A record that led to one node leads to another.
    pub(crate) fn moved(&mut self, before: &RouterRecord, record: &RouterRecord) {
        let left = before.node.as_ref().filter(|left| record.node.as_ref() != Some(*left));
        if let (Some(left), Some(_)) = (left, &record.node) {
            let moved = Move { at: record.connected_at, is_told: false };
            self.moves.insert((left.clone(), record.uaid), moved);
        }
    }

    /// Whether a node never heard of the last move away from it.
    fn is_ignorant(&self, node: &NodeId, uaid: Uaid) -> bool {
        self.moves.get(&(node.clone(), uaid)).is_some_and(|moved| !moved.is_told)
    }
}

impl World {
    /// A letter comes, is lost, or comes and will come again because its answer is lost.
    pub(super) fn letter_arrives(&mut self, letter: usize, how: How) {
        let letter = match how {
            How::AckReplyLost => self.post.letters[letter].clone(),
            How::Well | How::Early | How::NotDone => self.post.letters.remove(letter),
        };
        if how == How::NotDone {
            return;
        }
        let Letter { to, uaid, connected_at } = letter;
        if let Some(line) = self.find(&to, uaid) {
            self.lines[line].mail.push_back(Event::ConnectedElsewhere { connected_at });
        }
        let moved = self.post.moves.get_mut(&(to, uaid));
        if let Some(moved) = moved.filter(|moved| moved.at <= connected_at) {
            moved.is_told = true;
        }
    }

    /// Remembers as what a line is registered, and how it ended.
    pub(super) fn watch(
        &mut self,
        line: usize,
        event: &Event,
        effects: &[Effect],
    ) -> Result<(), SyntaxError> {
        let registered = match event {
            Event::StoreAnswered { answer: Ok(StoreAnswer::Registered(outcome)), .. } => {
                Some(outcome)
            }
            _ => None,
        };
        if let Some(RegisterResult::Registered(record, _)) = registered {
            self.lines[line].registered = record.binding().map(|place| (record.uaid, place));
        }
        self.lines[line].is_shut_down |=
            effects.last() == Some(&Effect::Close(CloseReason::Shutdown));
        let is_told = registered.is_some() || matches!(event, Event::ConnectedElsewhere { .. });
        if is_told && effects.last() == Some(&Effect::Close(CloseReason::Replaced)) {
            return self.is_not_the_last(line);
        }
        Ok(())
    }

    /// Nobody gives way to another node whose record leads here.
    fn is_not_the_last(&self, line: usize) -> Result<(), SyntaxError> {
        match &self.lines[line].registered {
            Some((uaid, place)) if self.place(*uaid).as_ref() == Some(place) => {
                Err(format!("line {line} gave way, and the record leads to it"))
            }
            _ => Ok(()),
        }
    }

    /// With nothing under way: of the connections that were registered only that is live which the record leads to.
    /// On its node that is whoever came last, even if an older one that is gone was the last to write.
    pub(super) fn only_the_last_is_live(&self) -> Result<(), SyntaxError> {
        let Some(uaid) = self.agent.uaid else { return Ok(()) };
        let place = self.place(uaid);
        for node in &self.nodes {
            let node = &node.config.node;
            let found = self.find(node, uaid).map(|line| &self.lines[line]);
            let registered = found.and_then(|line| line.registered.as_ref());
            let own = registered.filter(|(whose, _)| *whose == uaid);
            let is_last = place.as_ref().is_some_and(|place| place.node == *node);
            if own.is_some() && !is_last && !self.post.is_ignorant(node, uaid) {
                return Err(format!("{own:?} is live, and the record leads to {place:?}"));
            }
        }
        self.no_record_leads_to_a_line_that_was_shut_down(uaid)
    }

    fn no_record_leads_to_a_line_that_was_shut_down(&self, uaid: Uaid) -> Result<(), SyntaxError> {
        let place = self.place(uaid).map(|place| (uaid, place));
        let mut shut_down = self.lines.iter().filter(|line| line.is_shut_down);
        let is_left = place.is_some() && shut_down.any(|line| line.registered == place);
        if is_left && !self.post.is_clear_lost {
            return Err(format!("the record leads to {place:?}, which was shut down"));
        }
        Ok(())
    }

    fn place(&self, uaid: Uaid) -> Option<NodeBinding> {
        self.store.records.get(&uaid)?.binding()
    }
}
