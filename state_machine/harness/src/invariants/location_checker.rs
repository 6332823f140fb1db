//! Records what the rules about several nodes need to know of a connection, and checks them.

use super::rule::{Checked, Invariant as Is, StepRecord, check};
use state_machine::connection::{CloseReason, Config, Effect, Event, PhaseName};
use state_machine::ids::{NodeId, OpId, Uaid};
use state_machine::record::NodeBinding;
use state_machine::store::{RegisterResult, Registration, StoreAnswer, StoreOp};
use state_machine::time::Time;

/// The location of an agent, derived from a connection's writes and the notifications it received.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct LocationChecker {
    /// The uaid under which the registry has the connection, and the time in its last write.
    own: Option<(Uaid, Time)>,
    /// Whether a registration of this uaid was submitted.
    has_record: bool,
    /// The registration without an answer.
    registering: Option<OpId>,
    /// The latest connection to another node that was reported during registration.
    elsewhere: Option<Time>,
    /// The node that must be notified in this step.
    to_notify: Option<NodeId>,
    is_cleared: bool,
}

impl LocationChecker {
    /// Records an event before its effects.
    pub(super) fn happened(&mut self, seen: &StepRecord<'_>, config: &Config) {
        match seen.event {
            Event::ConnectedElsewhere { connected_at } => {
                self.elsewhere = self.elsewhere.max(Some(*connected_at));
            }
            Event::StoreAnswered { op, answer: Ok(StoreAnswer::Registered(outcome)) }
                if self.registering == Some(*op) =>
            {
                self.registering = None;
                if let RegisterResult::Registered(_, Some(NodeBinding { node, .. })) = outcome {
                    self.to_notify = Some(node.clone()).filter(|node| *node != config.node);
                }
            }
            _ => {}
        }
    }

    /// Records that the registry has the connection under this uaid.
    pub(super) fn entered(&mut self, uaid: Uaid, now: Time) {
        *self = Self { own: Some((uaid, now)), ..Self::default() };
    }

    /// Checks a notification to another node.
    pub(super) fn notified(&mut self, node: &NodeId, uaid: Uaid, connected_at: Time) -> Checked {
        let expected = self.to_notify.take();
        check!(
            expected.as_ref() == Some(node),
            Is::PreviousNodeNotified,
            "{node} for {expected:?}"
        );
        let (own, notified) = (self.own, Some((uaid, connected_at)));
        check!(
            own == notified,
            Is::PreviousNodeNotified,
            "{node} is notified of {notified:?}, it is {own:?}"
        );
        Ok(())
    }

    /// Records a store operation.
    pub(super) fn asked(
        &mut self,
        op: OpId,
        operation: &StoreOp,
        seen: &StepRecord<'_>,
        config: &Config,
    ) -> Checked {
        match operation {
            StoreOp::Register(Registration { uaid, connected_at, .. }) => {
                self.own = Some((*uaid, *connected_at));
                self.has_record = true;
                self.registering = Some(op);
            }
            StoreOp::ClearNode { uaid, binding } => {
                self.cleared(*uaid, binding, seen, config)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn cleared(
        &mut self,
        uaid: Uaid,
        binding: &NodeBinding,
        seen: &StepRecord<'_>,
        config: &Config,
    ) -> Checked {
        let (own, cleared) = (self.own, Some((uaid, binding.connected_at)));
        let is_own = binding.node == config.node && own == cleared;
        check!(is_own, Is::NodeClearedAtShutdown, "{binding:?} of {uaid}, it is {own:?}");
        check!(is_shut_down(seen), Is::NodeClearedAtShutdown, "cleared by {:?}", seen.event);
        check!(self.has_record, Is::NodeClearedAtShutdown, "no record of {uaid} was written");
        check!(!self.is_cleared, Is::NodeClearedAtShutdown, "{uaid} is cleared twice");
        self.is_cleared = true;
        Ok(())
    }

    /// Checks what must hold between steps.
    pub(super) fn rested(&mut self, seen: &StepRecord<'_>) -> Checked {
        let unnotified = &self.to_notify;
        check!(unnotified.is_none(), Is::PreviousNodeNotified, "{unnotified:?} is not notified");
        let is_cleared = self.is_cleared == (self.has_record && is_shut_down(seen));
        check!(is_cleared, Is::NodeClearedAtShutdown, "{:?} is not cleared", self.own);
        self.gives_way(seen)
    }

    /// During registration the connection cannot know which of two connections is later.
    fn gives_way(&mut self, seen: &StepRecord<'_>) -> Checked {
        let is_decided = self.registering.is_none() || seen.before != PhaseName::Identified;
        let elsewhere = if is_decided { self.elsewhere.take() } else { None };
        let is_later = self.own.is_some_and(|(_, own)| Some(own) < elsewhere);
        let is_closed = seen.after == PhaseName::Closed;
        check!(is_closed || !is_later, Is::LaterConnectionStays, "{elsewhere:?} is later");
        let gives_way = decides_which_is_later(seen.event) && closes(seen, CloseReason::Replaced);
        check!(is_later || !gives_way, Is::LaterConnectionStays, "gone because of {elsewhere:?}");
        Ok(())
    }
}

fn decides_which_is_later(event: &Event) -> bool {
    match event {
        Event::ConnectedElsewhere { .. } => true,
        Event::StoreAnswered { answer: Ok(StoreAnswer::Registered(outcome)), .. } => {
            matches!(outcome, RegisterResult::Registered(..))
        }
        _ => false,
    }
}

fn is_shut_down(seen: &StepRecord<'_>) -> bool {
    closes(seen, CloseReason::Shutdown)
}

fn closes(seen: &StepRecord<'_>, reason: CloseReason) -> bool {
    seen.effects.last() == Some(&Effect::Close(reason))
}
