//! The contract of delivery receipts (RFC 8030 §5.1). `tests/suite/conformance` tests each sentence of it on each engine.
//!
//! The general rules of [`store`](crate::store) apply. The feed of a receipt subscription
//! ([`FeedName::receipts`]) is written by these methods only; nodes publish and read it like any other.

use state_machine::feed::FeedName;
use state_machine::{AckCode, Message, MessageId, MessageKey, Month, ReceiptRequest, Time, Uaid};

use crate::answer::{StoreError, StoreFuture, answered};

/// A receipt that is not decided yet.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ExpectedReceipt {
    pub request: ReceiptRequest,
    /// When the message counts as expired: [`Message::kept_until`](state_machine::Message::kept_until).
    pub deadline: Time,
}

impl ExpectedReceipt {
    /// That of a message, if its sender wants one.
    pub fn of(message: &Message) -> Option<Self> {
        let request = message.receipt.as_deref()?.clone();
        Some(Self { request, deadline: message.kept_until() })
    }
}

/// What became of a message that is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settlement {
    /// The agent has acked it.
    Acked(AckCode),
    /// Its sender has deleted it: it has no receipt.
    Withdrawn,
}

/// A message to delete, and what has become of it. The receipt of one without a settlement stays as it is.
pub type Deletion = (MessageKey, Option<Settlement>);

/// The messages of [`StoreOp::Delete`](crate::store::StoreOp::Delete) with their acks.
pub fn deletions(messages: Vec<MessageKey>, acks: &[(MessageId, AckCode)]) -> Vec<Deletion> {
    let with_ack = |message: MessageKey| {
        let ack = acks.iter().find(|(id, _)| *id == message.id);
        (message, ack.map(|(_, code)| Settlement::Acked(*code)))
    };
    messages.into_iter().map(with_ack).collect()
}

/// The deletion of a message by its sender.
pub fn withdrawal(message: MessageKey) -> Deletion {
    let settlement = message.id.may_want_receipt().then_some(Settlement::Withdrawn);
    (message, settlement)
}

/// The result of [`ReceiptTables::expire_receipts`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExpiredReceipts {
    /// The subscriptions that have unpublished receipts now.
    pub subscriptions: Vec<FeedName>,
    /// Receipts that were decided.
    pub receipts: u64,
    /// Subscriptions that had ended and were removed.
    pub ended: u64,
    /// Whether another call has more to do.
    pub is_more: bool,
}

/// The receipts of messages, from the push to their end. A store without receipts refuses all but messages without them.
pub trait ReceiptTables: Send + Sync {
    /// Expects a receipt, before its message is stored. The subscription exists from its first message on. Idempotent on
    /// the request. False if the subscription has `messages_max` messages, with and without receipt: nothing was written.
    fn expect_receipt(&self, expected: ExpectedReceipt, messages_max: u64) -> StoreFuture<bool> {
        let _ = (expected, messages_max);
        answered(Err(NONE))
    }

    /// Expects a receipt no more: its message was refused. One that is decided stays.
    fn cancel_receipt(&self, expected: ExpectedReceipt) -> StoreFuture<()> {
        let _ = expected;
        answered(Err(NONE))
    }

    /// Deletes a message for its sender, in each of the months: it has no receipt. Returns whether it was there.
    fn withdraw_message(
        &self,
        uaid: Uaid,
        months: Vec<Month>,
        message: MessageKey,
    ) -> StoreFuture<bool> {
        let _ = (uaid, months, message);
        answered(Err(NONE))
    }

    /// Writes *expired* for receipts whose deadline is not after `now`, and removes subscriptions that have ended by
    /// `now`, with all their receipts. A message that another of its topic replaced is not expected any more, so it has
    /// no receipt. Many nodes may call it concurrently.
    fn expire_receipts(&self, now: Time) -> StoreFuture<ExpiredReceipts> {
        let _ = now;
        answered(Err(NONE))
    }
}

const NONE: StoreError = StoreError::Unsupported("this store has no receipts");
