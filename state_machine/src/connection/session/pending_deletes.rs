//! Acks that are not settled yet: rows to delete, and the ids of recent acks.

use std::collections::{BTreeMap, VecDeque};

use crate::ids::{Chid, MessageId, Uaid};
use crate::message::MessageKey;
use crate::month::Month;
use crate::receipt::AckCode;
use crate::store::StoreOp;

/// One delete is under way at a time. Messages acked meanwhile are deleted by the next one, so a hundred acks do not
/// make a hundred writes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct PendingDeletes {
    /// The ids acked last, oldest first. A row with such an id was stored after its ack.
    remembered: VecDeque<MessageId>,
    /// The codes of remembered acks whose messages may want a receipt, but for the usual code. None while it is empty.
    #[expect(clippy::box_collection, reason = "most sessions have none, in a third of the memory")]
    codes: Option<Box<BTreeMap<MessageId, AckCode>>>,
    /// None while it would be empty: the ack of a direct push deletes nothing.
    unsettled: Option<Box<Unsettled>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Unsettled {
    waiting: Vec<MessageKey>,
    /// The codes of the acks among them whose messages may want a receipt.
    acks: Vec<(MessageId, AckCode)>,
    /// The messages of the delete under way. Their rows may still be read, however many acks arrived since.
    deleting: Vec<MessageId>,
}

impl PendingDeletes {
    /// Whether every ack so far is settled.
    pub(super) fn is_settled(&self) -> bool {
        self.unsettled.is_none()
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.unsettled.as_ref().is_some_and(|unsettled| !unsettled.deleting.is_empty())
    }

    /// Whether a row of this message must be deleted instead of sent.
    pub(super) fn remembers(&self, id: MessageId) -> bool {
        self.remembered.iter().any(|acked| acked.covers(id))
            || self.unsettled.as_ref().is_some_and(|unsettled| unsettled.contains(id))
    }

    /// Remembers an ack, and forgets the oldest if there are `max`.
    pub(super) fn remember(&mut self, id: MessageId, code: AckCode, max: usize) {
        if self.remembered.len() >= max
            && let Some(oldest) = self.remembered.pop_front()
        {
            self.forget_code(oldest);
        }
        self.remembered.push_back(id);
        if id.may_want_receipt() && code != AckCode::Delivered {
            self.codes.get_or_insert_default().insert(id, code);
        }
    }

    /// The code of a remembered ack.
    pub(super) fn code_of(&self, id: MessageId) -> AckCode {
        let code = self.codes.as_ref().and_then(|codes| codes.get(&id));
        code.copied().unwrap_or(AckCode::Delivered)
    }

    fn forget_code(&mut self, id: MessageId) {
        if let Some(codes) = &mut self.codes {
            codes.remove(&id);
        }
        self.codes.take_if(|codes| codes.is_empty());
    }

    /// Versions of a SimplePush channel that is registered again may begin anew.
    pub(super) fn forget_versions(&mut self, chid: Chid) {
        self.remembered.retain(|id| id.version_of(chid).is_none());
    }

    pub(super) fn delete(&mut self, message: MessageKey) {
        self.unsettled.get_or_insert_default().waiting.push(message);
    }

    /// As [`PendingDeletes::delete`], for a message that the agent has acked.
    pub(super) fn delete_acked(&mut self, message: MessageKey, code: AckCode) {
        if message.id.may_want_receipt() {
            self.unsettled.get_or_insert_default().acks.push((message.id, code));
        }
        self.delete(message);
    }

    /// How many rows wait for the next delete.
    pub(super) fn backlog(&self) -> usize {
        self.unsettled.as_ref().map_or(0, |unsettled| unsettled.waiting.len())
    }

    /// The next delete, if one is due and none is under way.
    pub(super) fn next(&mut self, uaid: Uaid, months: &[Month]) -> Option<StoreOp> {
        let Unsettled { waiting, acks, deleting } = self.unsettled.as_deref_mut()?;
        if !deleting.is_empty() || waiting.is_empty() {
            return None;
        }
        *deleting = waiting.iter().map(|message| message.id).collect();
        let (messages, acks) = (std::mem::take(waiting), std::mem::take(acks));
        Some(StoreOp::Delete { uaid, months: months.to_vec(), messages, acks })
    }

    /// The delete under way is durable.
    pub(super) fn on_deleted(&mut self) {
        if let Some(unsettled) = &mut self.unsettled {
            unsettled.deleting = Vec::new();
        }
        self.unsettled.take_if(|unsettled| unsettled.waiting.is_empty());
    }
}

impl Unsettled {
    fn contains(&self, id: MessageId) -> bool {
        let deleting = self.deleting.iter().copied();
        deleting.chain(self.waiting.iter().map(|message| message.id)).any(|acked| acked.covers(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UAID: Uaid = Uaid([1; 16]);
    const NOVEMBER: Month = match Month::new(2026, 11) {
        Ok(month) => month,
        Err(_) => panic!("November is a month"),
    };

    fn key(number: u128, wants_receipt: bool) -> MessageKey {
        let id = MessageId::from_uuid_v7(number << 80, false).with_receipt(wants_receipt);
        MessageKey { id, chid: Chid([2; 16]), topic: None }
    }

    #[test]
    fn a_delete_has_the_codes_of_messages_that_may_want_a_receipt() {
        let mut deletes = PendingDeletes::default();
        let (plain, wanting, left) = (key(1, false), key(2, true), key(3, true));
        deletes.delete_acked(plain.clone(), AckCode::NotHandled);
        deletes.delete_acked(wanting.clone(), AckCode::DecryptionError);
        // A row of a channel that is gone.
        deletes.delete(left.clone());
        let delete = StoreOp::Delete {
            uaid: UAID,
            months: vec![NOVEMBER],
            acks: vec![(wanting.id, AckCode::DecryptionError)],
            messages: vec![plain, wanting, left],
        };
        assert_eq!(deletes.next(UAID, &[NOVEMBER]), Some(delete));
        deletes.on_deleted();
        assert!(deletes.is_settled());
    }

    #[test]
    fn the_code_of_an_ack_is_remembered_with_it() {
        let mut deletes = PendingDeletes::default();
        let [first, second, third] = [1, 2, 3].map(|number| key(number, true).id);
        deletes.remember(first, AckCode::DecryptionError, 2);
        deletes.remember(second, AckCode::Delivered, 2);
        let codes = |deletes: &PendingDeletes| [first, second].map(|id| deletes.code_of(id));
        assert_eq!(codes(&deletes), [AckCode::DecryptionError, AckCode::Delivered]);
        deletes.remember(third, AckCode::Delivered, 2);
        assert!(!deletes.remembers(first) && deletes.codes.is_none());
    }
}
