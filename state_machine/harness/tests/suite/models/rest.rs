//! The final checks, in states where nothing is in progress.
//!
//! From each such state a last connection is opened and run to its end, always in the same way. A
//! promise "in the end" is thus checked as a property of a state, and cycles cannot hide a
//! violation.

use harness::invariants::{Broken, Promise};
use state_machine::connection::{Event, PhaseName};
use state_machine::delivery::Outcome;
use state_machine::{ConnectionId, MessageId, Urgency};

use super::action::Action;
use super::endpoint::Push;
use super::lives::Life;
use super::node::ClientConnection;
use super::scenario::{Bounds, Scenario};
use super::world::{Fall, World};

/// Steps after which an agent must have received every message.
const STEPS_MAX: usize = 400;

impl Scenario {
    /// Checks a world in which nothing is in progress.
    pub(crate) fn judge(&self, world: &World) -> Result<(), Broken<Promise>> {
        if let Some(which) = world.pushes.iter().position(|push| world.hangs(push)) {
            return Err(Promise::ComesToRest.broken(format!("endpoint {which} waits for nothing")));
        }
        let mut end = world.clone();
        end.comes_back(self);
        match end.broken.take() {
            Some(Fall::Promise(broken)) => Err(broken),
            Some(Fall::Rule(Broken { rule, detail })) => {
                Err(Promise::ComesToRest.broken(format!("{rule}: {detail}")))
            }
            None => end.is_served().and_then(|()| world.rests_in_place(self)),
        }
    }
}

impl World {
    /// Whether a push waits for no event, not even an ack, for which a connection waits until its
    /// deadline.
    fn hangs(&self, push: &Push) -> bool {
        let waits_for_ack =
            push.awaited().is_some_and(|connection| self.connections.contains_key(&connection));
        push.under_way().is_some() && !waits_for_ack
    }

    /// Checks that an agent that is connected and has acked everything has received everything.
    fn rests_in_place(&self, scenario: &Scenario) -> Result<(), Broken<Promise>> {
        let is_served = self.phase() == Some(PhaseName::Ready) && self.agent.unacked.is_empty();
        let (Some(connection), true) = (self.agent.connection, is_served && !self.is_record_astray)
        else {
            return Ok(());
        };
        if !self.leads_to(scenario, connection) {
            let detail = "the record names another node, and the agent stays connected without a notification";
            return Err(Promise::FoundWhileConnected.broken(detail));
        }
        if let Some(old) = self.lingering().filter(|_| !self.is_unnotified) {
            let detail = format!("connection {} lingers: the agent is elsewhere", old.0);
            return Err(Promise::ComesToRest.broken(detail));
        }
        if self.agent.min_urgency != Urgency::VeryLow {
            return Ok(());
        }
        if self.is_nudge_lost {
            return self.busy_pushes_arrive(scenario, connection);
        }
        if let Some(id) = self.ledger.missing() {
            return Err(Promise::FoundWhileConnected.broken(format!("{id} waits in a table")));
        }
        self.nothing_acked_stays(scenario)
    }

    /// Checks that the connection finds the messages that it answered busy, although a notification was lost.
    fn busy_pushes_arrive(
        &self,
        scenario: &Scenario,
        connection: ConnectionId,
    ) -> Result<(), Broken<Promise>> {
        let of_line = self.busy.iter().filter(|(by, _)| *by == connection).map(|(_, id)| *id);
        let waiting: Vec<MessageId> = of_line.filter(|id| self.is_stored(*id)).collect();
        if waiting.is_empty() {
            return Ok(());
        }
        let mut later = self.clone();
        later.deadline_passes(scenario, connection);
        later.runs_out(scenario);
        match waiting.into_iter().find(|id| later.is_stored(*id)) {
            Some(id) => {
                let detail = format!("{id} was answered busy, and waits for the next recheck");
                Err(Promise::FoundWhileConnected.broken(detail))
            }
            None => Ok(()),
        }
    }

    /// Checks that every acked message with answer 201 is deleted without a recheck.
    fn nothing_acked_stays(&self, scenario: &Scenario) -> Result<(), Broken<Promise>> {
        let is_stored = |id: &MessageId| {
            let mut pushes = scenario.messages.iter().zip(&self.pushes);
            pushes.any(|(message, push)| message.id == *id && *push == Push::Over(Outcome::Stored))
        };
        let is_acked = |id: &MessageId| self.agent.acked.contains(id) && is_stored(id);
        let curmonth = self.record().map(|record| record.curmonth);
        let mut rows = self.store.rows(self.agent.uaid);
        match rows.find(|(month, id)| Some(*month) == curmonth && is_acked(id)) {
            Some((month, id)) => {
                let detail = format!("{id} was acked, and stays in {month}");
                Err(Promise::NothingLeftBehind.broken(detail))
            }
            None => Ok(()),
        }
    }

    /// A connection that the agent has abandoned for another node, and that stays open.
    fn lingering(&self) -> Option<ConnectionId> {
        let here = self.node();
        let is_old = |connection: &ClientConnection| {
            Some(connection.node) != here && !connection.is_closed()
        };
        self.connections.iter().find(|(_, connection)| is_old(connection)).map(|(id, _)| *id)
    }

    /// Whether a push finds this connection: the record leads to its node, and the registry to the
    /// connection.
    pub(crate) fn leads_to(&self, scenario: &Scenario, connection: ConnectionId) -> bool {
        let node = self.record().and_then(|record| record.node.as_ref());
        node.and_then(|node| self.found_at(scenario, node)) == Some(connection)
    }

    /// Ends all connections. The agent then reconnects and stays until it has acked everything.
    pub(crate) fn comes_back(&mut self, scenario: &Scenario) {
        self.left = Bounds::default();
        let connections: Vec<ConnectionId> = self.connections.keys().copied().collect();
        for connection in connections {
            self.step(scenario, connection, &Event::SocketClosed);
        }
        self.agent.connection = None;
        self.nodes.iter_mut().for_each(|node| node.life = Life::Up);
        self.runs_out(scenario);
        self.connects(scenario, 0);
        self.runs_out(scenario);
    }

    /// Executes the operations in progress, always the first one, and acks every message.
    pub(crate) fn runs_out(&mut self, scenario: &Scenario) {
        for _ in 0..STEPS_MAX {
            if self.broken.is_some() {
                return;
            }
            let ack = self.agent.unacked.first().and_then(|(_, id)| {
                let which = scenario.messages.iter().position(|message| message.id == *id)?;
                self.agent.connection.map(|connection| Action::Acks(connection, which))
            });
            match ack.or_else(|| self.under_way(scenario).into_iter().next()) {
                Some(action) => self.happens(scenario, &action),
                None => return,
            }
        }
        self.breaks(Promise::ComesToRest.broken("there is no end to what is under way"));
    }

    fn is_served(&self) -> Result<(), Broken<Promise>> {
        if self.phase() != Some(PhaseName::Ready) {
            let detail = format!("the last connection ends up as {:?}", self.phase());
            return Err(Promise::ComesToRest.broken(detail));
        }
        let rows: Vec<_> = self.store.rows(self.agent.uaid).collect();
        self.ledger.rests(rows, self.record().and_then(|record| record.oldmonth))?;
        self.ledger.receipts_are_there(&self.store.receipts)
    }
}
