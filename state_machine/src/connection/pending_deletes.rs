//! Acks on their way to being settled: rows to delete, and acked ids that are remembered.

use std::collections::VecDeque;

use super::effect::Effects;
use super::pending_ops::PendingOps;
use crate::ids::{MessageId, Uaid};
use crate::message::MessageKey;
use crate::month::Month;
use crate::store::StoreOp;

/// What was acked. One delete is under way at a time; what is acked meanwhile goes with the next,
/// so that a hundred acks do not make a hundred writes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct PendingDeletes {
    /// Acked lately, oldest first: a row among them that shows up was stored after its ack.
    remembered: VecDeque<MessageId>,
    waiting: Vec<MessageKey>,
    /// Whose delete is under way: their rows may still be seen, however many acks came since.
    deleting: Vec<MessageId>,
}

impl PendingDeletes {
    /// Whether every ack so far is settled.
    pub(super) fn is_settled(&self) -> bool {
        self.deleting.is_empty() && self.waiting.is_empty()
    }

    pub(super) fn is_deleting(&self) -> bool {
        !self.deleting.is_empty()
    }

    /// Whether this message is done with: a row of it is to be deleted, not sent.
    pub(super) fn remembers(&self, id: MessageId) -> bool {
        self.remembered.contains(&id)
            || self.deleting.contains(&id)
            || self.waiting.iter().any(|message| message.id == id)
    }

    pub(super) fn remember(&mut self, id: MessageId, max: usize) {
        if self.remembered.len() >= max {
            self.remembered.pop_front();
        }
        self.remembered.push_back(id);
    }

    /// The row of this message is to go.
    pub(super) fn delete(&mut self, message: MessageKey) {
        self.waiting.push(message);
    }

    /// How many rows wait for the next delete.
    pub(super) fn backlog(&self) -> usize {
        self.waiting.len()
    }

    /// Starts the next delete where one is due and none is under way.
    pub(super) fn flush(
        &mut self,
        uaid: Uaid,
        months: &[Month],
        ops: &mut PendingOps,
        out: &mut Effects,
    ) {
        if self.deleting.is_empty() && !self.waiting.is_empty() {
            self.deleting = self.waiting.iter().map(|message| message.id).collect();
            let messages = std::mem::take(&mut self.waiting);
            ops.submit(StoreOp::Delete { uaid, months: months.to_vec(), messages }, out);
        }
    }

    /// The delete under way is durable.
    pub(super) fn deleted(&mut self) {
        self.deleting = Vec::new();
    }

    /// Starts the last delete, whatever is under way: nobody will be there for its answer.
    pub(super) fn closed(
        mut self,
        uaid: Uaid,
        months: &[Month],
        ops: &mut PendingOps,
        out: &mut Effects,
    ) {
        self.deleted();
        self.flush(uaid, months, ops, out);
    }
}
