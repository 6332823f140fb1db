//! The actions that are possible in a state: operations in progress, choices of agents and servers,
//! and faults.

use state_machine::Urgency;
use state_machine::connection::Wait;
use state_machine::delivery::DeliveryEffect;
use state_machine::store::StoreOp;

use super::action::{Action, Fault, NodeIndex, Which};
use super::lives::Life;
use super::node::{ClientConnection, Pending};
use super::scenario::{Scenario, channel};
use super::world::World;

impl Scenario {
    /// All actions that are possible; none after a broken rule.
    pub(super) fn possible(&self, world: &World, actions: &mut Vec<Action>) {
        if world.broken.is_some() {
            return;
        }
        actions.extend(world.under_way(self));
        self.choices(world, actions);
        self.faults(world, actions);
        let mut left = world.left;
        actions.retain(|action| action.bound(&mut left).is_none_or(|left| *left > 0));
    }

    /// The choices of agents and application servers.
    fn choices(&self, world: &World, actions: &mut Vec<Action>) {
        let agent = &world.agent;
        if agent.connection.is_none() || self.freedom.leaves_unnoticed {
            let is_up = |node: &NodeIndex| world.nodes[*node].life == Life::Up;
            actions.extend((0..self.nodes.len()).filter(is_up).map(Action::Connects));
        }
        actions.extend(agent.connection.map(|_| Action::HangsUp));
        self.commands(world, actions);
        if world.next_deadline(self).is_none() {
            actions.extend(world.idle_deadline());
        }
        self.lives(world, actions);
        self.acks(world, actions);
        if self.freedom.acks_come_late {
            self.late_acks(world, actions);
        }
        self.pushes(world, actions);
    }

    fn commands(&self, world: &World, actions: &mut Vec<Action>) {
        let agent = &world.agent;
        if agent.connection.is_none() || !agent.is_greeted {
            return;
        }
        actions.push(Action::Registers);
        if agent.channels.contains(&channel(2)) {
            actions.push(Action::Unregisters);
        }
        let other = [Urgency::VeryLow, Urgency::Normal].into_iter();
        actions.extend(other.filter(|min| *min != agent.min_urgency).map(Action::SetsUrgency));
    }

    fn acks(&self, world: &World, actions: &mut Vec<Action>) {
        let Some(connection) = world.agent.connection.filter(|_| world.agent.is_greeted) else {
            return;
        };
        let is_unacked = |which: &Which| {
            let id = self.messages[*which].id;
            world.agent.unacked.iter().any(|(_, unacked)| *unacked == id)
        };
        let acks = (0..self.messages.len()).filter(is_unacked);
        actions.extend(acks.map(|which| Action::Acks(connection, which)));
    }

    fn late_acks(&self, world: &World, actions: &mut Vec<Action>) {
        for (connection, id) in &world.agent.unacked {
            let is_left = world.agent.connection != Some(*connection)
                && world.connections.contains_key(connection);
            let which = self.messages.iter().position(|message| message.id == *id);
            if let (true, Some(which)) = (is_left, which) {
                actions.push(Action::Acks(*connection, which));
            }
        }
    }

    fn pushes(&self, world: &World, actions: &mut Vec<Action>) {
        let is_waiting = |which: &usize| world.pushes[*which].is_waiting();
        let mut waiting = (0..self.messages.len()).filter(is_waiting);
        if self.freedom.pushes_in_any_order {
            actions.extend(waiting.map(Action::Pushes));
        } else {
            actions.extend(waiting.next().map(Action::Pushes));
        }
    }

    fn faults(&self, world: &World, actions: &mut Vec<Action>) {
        let mut faults = Vec::new();
        (0..world.nodes.len()).for_each(|node| world.faults_of_node(self, node, &mut faults));
        (0..world.pushes.len()).for_each(|which| world.faults_of_endpoint(which, &mut faults));
        faults.extend(world.notifications.iter().copied().map(Fault::NotificationLost));
        actions.extend(faults.into_iter().map(Action::Fails));
    }
}

impl World {
    fn faults_of_node(&self, scenario: &Scenario, at: NodeIndex, faults: &mut Vec<Fault>) {
        let node = &self.nodes[at];
        if self.may_crash(at) {
            faults.push(Fault::NodeCrashes(at));
            if node.queue.iter().any(Pending::outlives_its_node) {
                faults.push(Fault::NodeCrashesAfterWriting(at));
            }
        }
        for (at, Pending { connection, op, operation, .. }) in node.queue.iter().enumerate() {
            let is_heard =
                self.connections.contains_key(connection) || node.queue[at].is_last_word();
            if !node.may_be_done(at) || !is_heard {
                continue;
            }
            faults.push(Fault::StoreRefuses(*connection, *op));
            if operation.is_write() {
                faults.push(Fault::NoSpace(*connection, *op));
                let is_kept = matches!(operation, StoreOp::Register(_));
                if is_kept && scenario.nodes.len() == 1 {
                    faults.push(Fault::RegistrationUnwritten(*connection, *op));
                }
            }
            let is_awaited = self.connections.contains_key(connection) && node.queue[at].is_write();
            if is_awaited {
                faults.push(Fault::AckReplyLost(*connection, *op));
                if matches!(operation, StoreOp::MoveMessages { .. }) {
                    faults.push(Fault::CarriedByHalf(*connection, *op));
                }
            }
        }
    }

    fn faults_of_endpoint(&self, which: Which, faults: &mut Vec<Fault>) {
        let push = &self.pushes[which];
        if push.under_way().is_none() {
            return;
        }
        faults.push(Fault::EndpointCrashes(which));
        let (loss, is_for_store) = match push.next_effect() {
            None => (Fault::NodeAnswerLost(which), false),
            Some(DeliveryEffect::Deliver { .. }) => (Fault::Unreachable(which), false),
            Some(DeliveryEffect::NotifyMessageStored { .. }) => (Fault::NudgeLost(which), false),
            Some(_) => (Fault::EndpointAnswerLost(which), true),
        };
        faults.push(loss);
        if is_for_store {
            faults.push(Fault::StoreRefusesEndpoint(which));
        }
        if push.next_effect().is_some_and(is_write) {
            faults.push(Fault::NoSpaceForEndpoint(which));
        }
    }
}

/// Whether the endpoint's effect changes rows.
pub(crate) fn is_write(effect: &DeliveryEffect) -> bool {
    matches!(
        effect,
        DeliveryEffect::Store { .. }
            | DeliveryEffect::ClearNode { .. }
            | DeliveryEffect::DeleteStored { .. }
    )
}

impl World {
    /// The operations in progress: each is executed sooner or later.
    pub(crate) fn under_way(&self, scenario: &Scenario) -> Vec<Action> {
        let mut actions = Vec::new();
        for node in &self.nodes {
            for (at, pending) in node.queue.iter().enumerate() {
                let (connection, op) = (pending.connection, pending.op);
                if pending.answer.is_some() {
                    actions.push(Action::StoreAnswers(connection, op));
                } else if node.may_be_done(at) {
                    actions.push(Action::StoreExecutes(connection, op));
                }
            }
        }
        for (id, connection) in &self.connections {
            if !connection.mail.is_empty() {
                actions.push(Action::TakesPush(*id));
            }
            if connection.is_nudged || connection.is_replaced || connection.elsewhere.is_some() {
                actions.push(Action::TakesNotices(*id));
            }
        }
        for (which, push) in self.pushes.iter().enumerate() {
            if push.next_effect().is_some() {
                actions.push(Action::EndpointGoesOn(which));
            }
            let is_alone = push
                .awaited()
                .is_some_and(|connection| !self.connections.contains_key(&connection));
            if push.has_reply() || is_alone {
                actions.push(Action::EndpointGetsAnswer(which));
            }
        }
        self.lives_go_on(&mut actions);
        actions.extend(self.next_deadline(scenario));
        actions
    }

    /// The next deadline of an idle connection, if no other is before it.
    fn idle_deadline(&self) -> Option<Action> {
        let deadlines = self.connections.iter().filter_map(|(id, connection)| {
            match connection.machine.deadline()? {
                (at, Wait::Keepalive | Wait::SessionEnd) => Some((at, *id)),
                _ => None,
            }
        });
        deadlines.min().map(|(_, id)| Action::IdleDeadline(id))
    }

    /// Time does not pass the writes that a crashed node sent to the store: they are executed at
    /// once, or never.
    fn next_deadline(&self, scenario: &Scenario) -> Option<Action> {
        if self.nodes.last().is_some_and(|on_its_way| !on_its_way.queue.is_empty()) {
            return None;
        }
        let at = |connection: &ClientConnection| {
            let shown = connection.deadline(scenario.freedom.acks_tarry);
            shown.map(|shown| scenario.when(connection.node, shown).max(self.now))
        };
        let deadlines =
            self.connections.iter().filter_map(|(id, connection)| Some((at(connection)?, *id)));
        deadlines.min().map(|(_, id)| Action::Deadline(id))
    }
}
