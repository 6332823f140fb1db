//! Notifications to a node: a message was stored, or the agent is connected elsewhere.
//!
//! The sender keeps a notification until the node answers, as the real directory of nodes does. A
//! notification may therefore arrive late, and it is lost only with its sender.

use harness::invariants::Promise;
use state_machine::connection::Event;
use state_machine::delivery::Route;
use state_machine::{ConnectionId, NodeId, Time};

use super::action::NodeIndex;
use super::mutation::Mutation;
use super::scenario::Scenario;
use super::world::World;

/// A notification that was not delivered yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Letter {
    pub(crate) to: NodeIndex,
    pub(crate) word: Word,
}

/// The content of a notification about the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Word {
    Stored,
    /// The sending node registered the agent at that time.
    ConnectedElsewhere(Time),
}

impl World {
    /// An endpoint has stored a message: it notifies the node in the record that it read last.
    pub(crate) fn nudges(
        &mut self,
        scenario: &Scenario,
        node: &NodeId,
        first_look: Option<&Route>,
        is_kept: bool,
    ) {
        let first_node = first_look.and_then(|route| route.node.as_ref());
        let node = match scenario.mutation {
            Some(Mutation::NudgeAstray) => first_node.unwrap_or(node),
            _ => node,
        };
        let Some(to) = scenario.node_named(node) else { return };
        let is_given_up = scenario.mutation == Some(Mutation::NudgeOnce) && self.is_shunned(to);
        self.is_nudge_lost |= !is_kept;
        if is_kept && !is_given_up {
            self.sends(scenario, Letter { to, word: Word::Stored });
        }
    }

    /// The node that registered the agent notifies the agent's previous node.
    pub(crate) fn tells_node(
        &mut self,
        scenario: &Scenario,
        from: NodeIndex,
        node: &NodeId,
        connected_at: Time,
    ) {
        let to = match scenario.mutation {
            Some(Mutation::TellsItself) => Some(from),
            _ => scenario.node_named(node),
        };
        let since = match scenario.mutation {
            Some(Mutation::NoticeByClock) => scenario.clock(from, self.now),
            _ => connected_at,
        };
        let word = Word::ConnectedElsewhere(since);
        to.into_iter().for_each(|to| self.sends(scenario, Letter { to, word }));
    }

    fn sends(&mut self, scenario: &Scenario, letter: Letter) {
        if scenario.freedom.letters_travel {
            self.letters.insert(letter);
        } else {
            self.letter_arrives(scenario, letter);
        }
    }

    /// The connection that the registry finds will read the signal.
    pub(crate) fn letter_arrives(&mut self, scenario: &Scenario, letter: Letter) {
        self.letters.remove(&letter);
        let Some(id) = self.found_here(letter.to) else { return };
        let is_reading = self.nodes[letter.to].is_reading(id);
        let Some(line) = self.lines.get_mut(&id) else { return };
        match (letter.word, scenario.mutation) {
            (Word::Stored, Some(Mutation::NudgeDuringFetch)) if is_reading => {}
            (Word::Stored, _) => line.is_nudged = true,
            (Word::ConnectedElsewhere(_), Some(Mutation::StampsNotCompared)) => {
                line.elsewhere = Some(Time(u64::MAX));
            }
            (Word::ConnectedElsewhere(at), _) => line.elsewhere = line.elsewhere.max(Some(at)),
        }
    }

    pub(crate) fn letter_lost(&mut self, scenario: &Scenario, letter: Letter) {
        self.letters.remove(&letter);
        match letter.word {
            Word::Stored => self.is_nudge_lost = true,
            Word::ConnectedElsewhere(_) => {
                let line = self.found_here(letter.to).filter(|line| self.agent.line == Some(*line));
                self.is_record_astray |= line.is_some_and(|line| !self.leads_to(scenario, line));
                self.is_untold = true;
            }
        }
    }

    /// A connection is notified that its agent is elsewhere. A connection that is later than the
    /// other one stays open.
    pub(crate) fn hears_elsewhere(&mut self, scenario: &Scenario, id: ConnectionId, since: Time) {
        let is_found = self.leads_to(scenario, id);
        let is_of_agent = self.agent.line == Some(id);
        self.step(scenario, id, &Event::ConnectedElsewhere { connected_at: since });
        let Some(line) = self.lines.get(&id).filter(|line| line.is_closed()) else { return };
        if line.is_registered && is_found {
            let detail = "the record leads to a connection that is closed by word of an older one";
            self.breaks(Promise::FoundWhileConnected.broken(detail));
        } else if !line.is_registered && is_of_agent {
            let detail =
                "the agent reconnects, and is closed by a notification of an older connection";
            self.breaks(Promise::ComesToRest.broken(detail));
        }
    }
}
