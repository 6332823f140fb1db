//! An application server's push: the real delivery machine, and its operations in progress.

use std::collections::VecDeque;

use state_machine::delivery::{
    Delivery, DeliveryEffect, DeliveryEvent, NodeAnswer, Outcome, PushParams,
};
use state_machine::{Message, Month, Uaid};

use super::endpoints::SHORT;

#[derive(Debug)]
pub(crate) struct Push {
    pub(crate) uaid: Uaid,
    pub(crate) message: Message,
    delivery: Delivery,
    /// The delivery effects that were not executed yet.
    pub(crate) todo: VecDeque<DeliveryEffect>,
    /// Whether a node has the push and the endpoint still waits for its answer.
    pub(crate) is_handed_over: bool,
    /// The node's answer on its way.
    pub(crate) answer: Option<NodeAnswer>,
    pub(crate) outcome: Option<Outcome>,
    /// How many pushes had ended when it began, with its first id.
    pub(crate) began_after: usize,
    /// How many pushes had ended before it.
    pub(crate) ended_after: Option<usize>,
    /// Whether it has an id above that of an outranked one.
    pub(crate) is_repeated: bool,
    /// Whether a row of the message was ever written.
    pub(crate) was_stored: bool,
    /// Whether a row may remain that no promise covers.
    pub(crate) may_stray: bool,
}

impl Push {
    pub(crate) fn begin(
        uaid: Uaid,
        message: Message,
        this_month: Month,
        before: Option<&Self>,
        began_after: usize,
    ) -> Self {
        let terms = PushParams {
            ttl_is_zero: message.ttl_is_zero(),
            stores_first: before.is_some(),
            this_month,
            message_month: this_month,
        };
        let (delivery, first) = Delivery::begin(terms);
        Self {
            uaid,
            message,
            delivery,
            todo: [first].into(),
            is_handed_over: false,
            answer: None,
            outcome: None,
            began_after: before.map_or(began_after, |before| before.began_after),
            ended_after: None,
            is_repeated: before.is_some(),
            was_stored: false,
            may_stray: false,
        }
    }

    /// Whether the push can continue by itself.
    pub(crate) fn is_pending(&self) -> bool {
        !self.todo.is_empty() || self.answer.is_some()
    }

    pub(crate) fn happened(&mut self, event: DeliveryEvent) {
        self.todo.extend(self.delivery.step(event));
    }

    /// Whether the application server received an answer that the message is stored or delivered.
    pub(crate) fn is_promised(&self) -> bool {
        matches!(self.outcome, Some(Outcome::Delivered | Outcome::Stored)) && self.is_lasting()
    }

    /// Whether the message outlasts the test.
    pub(crate) fn is_lasting(&self) -> bool {
        self.message.ttl > SHORT
    }

    pub(crate) fn is_gone(&self) -> bool {
        use Outcome::{NoSuchChannel, NoSuchUser, UserWentAway};
        matches!(self.outcome, Some(NoSuchChannel | NoSuchUser | UserWentAway))
    }
}
