//! The actions that are possible in a state: operations in progress, choices of agents and servers,
//! and faults.

use state_machine::Urgency;
use state_machine::connection::Wait;
use state_machine::delivery::DeliveryEffect;
use state_machine::store::StoreOp;

use super::action::{Action, Fault, NodeIndex, Which};
use super::lives::Life;
use super::node::{Line, Pending};
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
        if agent.line.is_none() || self.freedom.leaves_unnoticed {
            let is_up = |node: &NodeIndex| world.nodes[*node].life == Life::Up;
            actions.extend((0..self.nodes.len()).filter(is_up).map(Action::Connects));
        }
        actions.extend(agent.line.map(|_| Action::HangsUp));
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
        if agent.line.is_none() || !agent.is_greeted {
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
        let Some(line) = world.agent.line.filter(|_| world.agent.is_greeted) else { return };
        let is_unacked = |which: &Which| {
            let id = self.messages[*which].id;
            world.agent.unacked.iter().any(|(_, unacked)| *unacked == id)
        };
        let acks = (0..self.messages.len()).filter(is_unacked);
        actions.extend(acks.map(|which| Action::Acks(line, which)));
    }

    fn late_acks(&self, world: &World, actions: &mut Vec<Action>) {
        for (line, id) in &world.agent.unacked {
            let is_left = world.agent.line != Some(*line) && world.lines.contains_key(line);
            let which = self.messages.iter().position(|message| message.id == *id);
            if let (true, Some(which)) = (is_left, which) {
                actions.push(Action::Acks(*line, which));
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
        faults.extend(world.letters.iter().copied().map(Fault::LetterLost));
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
        for (place, Pending { line, op, order, .. }) in node.queue.iter().enumerate() {
            let is_heard = self.lines.contains_key(line) || node.queue[place].is_last_word();
            if !node.may_be_done(place) || !is_heard {
                continue;
            }
            faults.push(Fault::StoreRefuses(*line, *op));
            if order.is_write() {
                faults.push(Fault::NoSpace(*line, *op));
                let is_kept = matches!(order, StoreOp::Register(_));
                if is_kept && scenario.nodes.len() == 1 {
                    faults.push(Fault::RegistrationUnwritten(*line, *op));
                }
            }
            let is_awaited = self.lines.contains_key(line) && node.queue[place].is_write();
            if is_awaited {
                faults.push(Fault::AckReplyLost(*line, *op));
                if matches!(order, StoreOp::MoveMessages { .. }) {
                    faults.push(Fault::CarriedByHalf(*line, *op));
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
        let (loss, is_for_store) = match push.next_order() {
            None => (Fault::NodeAnswerLost(which), false),
            Some(DeliveryEffect::Deliver { .. }) => (Fault::Unreachable(which), false),
            Some(DeliveryEffect::NotifyMessageStored { .. }) => (Fault::NudgeLost(which), false),
            Some(_) => (Fault::EndpointAnswerLost(which), true),
        };
        faults.push(loss);
        if is_for_store {
            faults.push(Fault::StoreRefusesEndpoint(which));
        }
        if push.next_order().is_some_and(is_write) {
            faults.push(Fault::NoSpaceForEndpoint(which));
        }
    }
}

/// Whether the endpoint's order changes rows.
pub(crate) fn is_write(order: &DeliveryEffect) -> bool {
    matches!(
        order,
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
                let (line, op) = (pending.line, pending.op);
                if pending.answer.is_some() {
                    actions.push(Action::HearsStore(line, op));
                } else if node.may_be_done(at) {
                    actions.push(Action::StoreDoes(line, op));
                }
            }
        }
        for (id, line) in &self.lines {
            if !line.mail.is_empty() {
                actions.push(Action::TakesPush(*id));
            }
            if line.is_nudged || line.is_replaced || line.elsewhere.is_some() {
                actions.push(Action::TakesNotices(*id));
            }
        }
        for (which, push) in self.pushes.iter().enumerate() {
            if push.next_order().is_some() {
                actions.push(Action::EndpointGoesOn(which));
            }
            let is_alone = push.awaited().is_some_and(|line| !self.lines.contains_key(&line));
            if push.has_reply() || is_alone {
                actions.push(Action::EndpointHears(which));
            }
        }
        self.lives_go_on(&mut actions);
        actions.extend(self.next_deadline(scenario));
        actions
    }

    /// The next deadline of an idle connection, if no other is before it.
    fn idle_deadline(&self) -> Option<Action> {
        let deadlines =
            self.lines.iter().filter_map(|(id, line)| match line.connection.deadline()? {
                (at, Wait::Keepalive | Wait::SessionEnd) => Some((at, *id)),
                _ => None,
            });
        deadlines.min().map(|(_, id)| Action::IdleDeadline(id))
    }

    /// Time does not pass the writes that a crashed node sent to the store: they are executed at
    /// once, or never.
    fn next_deadline(&self, scenario: &Scenario) -> Option<Action> {
        if self.nodes.last().is_some_and(|on_its_way| !on_its_way.queue.is_empty()) {
            return None;
        }
        let at = |line: &Line| {
            let shown = line.deadline(scenario.freedom.acks_tarry);
            shown.map(|shown| scenario.when(line.node, shown).max(self.now))
        };
        let deadlines = self.lines.iter().filter_map(|(id, line)| Some((at(line)?, *id)));
        deadlines.min().map(|(_, id)| Action::Deadline(id))
    }
}
