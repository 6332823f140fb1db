//! An application server's push: the real delivery machine and what is under way for it.

use std::collections::VecDeque;

use state_machine::connection::PushAnswer;
use state_machine::delivery::{
    Delivery, DeliveryEffect, DeliveryEvent, NodeAnswer, Outcome, PushParams,
};
use state_machine::{Message, Month, Uaid};

#[derive(Debug)]
pub(crate) struct Push {
    pub(crate) uaid: Uaid,
    pub(crate) message: Message,
    delivery: Delivery,
    /// Orders of the delivery that were not carried out yet.
    pub(crate) todo: VecDeque<DeliveryEffect>,
    /// Whether a node has it and was not given up on.
    pub(crate) is_handed_over: bool,
    /// What the node answered, on its way.
    pub(crate) answer: Option<NodeAnswer>,
    pub(crate) outcome: Option<Outcome>,
    /// Whether a row of it was ever written.
    pub(crate) was_stored: bool,
    /// Whether a row may be left that nobody promised anything about.
    pub(crate) may_stray: bool,
}

impl Push {
    pub(crate) fn begin(uaid: Uaid, message: Message, this_month: Month) -> Self {
        let terms = PushParams { ttl_is_zero: message.ttl_is_zero(), this_month };
        let (delivery, first) = Delivery::begin(terms);
        Self {
            uaid,
            message,
            delivery,
            todo: [first].into(),
            is_handed_over: false,
            answer: None,
            outcome: None,
            was_stored: false,
            may_stray: false,
        }
    }

    /// Whether it can go on by itself.
    pub(crate) fn is_pending(&self) -> bool {
        !self.todo.is_empty() || self.answer.is_some()
    }

    pub(crate) fn happened(&mut self, event: DeliveryEvent) {
        self.todo.extend(self.delivery.step(event));
    }

    /// Whether the application server was told that its message is kept.
    pub(crate) fn is_promised(&self) -> bool {
        matches!(self.outcome, Some(Outcome::Delivered | Outcome::Stored))
            && !self.message.ttl_is_zero()
    }

    pub(crate) fn is_gone(&self) -> bool {
        use Outcome::{NoSuchChannel, NoSuchUser, UserWentAway};
        matches!(self.outcome, Some(NoSuchChannel | NoSuchUser | UserWentAway))
    }
}

pub(crate) fn node_answer(answer: PushAnswer) -> NodeAnswer {
    match answer {
        PushAnswer::Accepted => NodeAnswer::Accepted,
        PushAnswer::Unconfirmed => NodeAnswer::Unconfirmed,
        PushAnswer::Busy => NodeAnswer::Busy,
        PushAnswer::NoSuchChannel => NodeAnswer::NoSuchChannel,
    }
}
