//! The promises of the whole service, whatever fails in it: rules that need more than one
//! connection to check.
//!
//! A [`DeliveryModel`] records what an application server and a user agent observed and, at rest,
//! the rows that are left in the tables. The same predicates therefore serve the model checker and
//! the traces of the real actors.

use std::collections::{BTreeMap, BTreeSet};

use super::rule::{Broken, sentences};
use state_machine::ids::{Chid, MessageId};
use state_machine::message::{Message, Topic};
use state_machine::month::Month;

sentences! {
    /// A promise of the whole service to application servers and user agents.
    Promise:
    AcceptedNeverLost, "accepted_never_lost",
        "A message with a TTL that was answered 201 reaches its agent, or one of its topic does that was not accepted before it was pushed.";
    AckedNeverAgain, "acked_never_again",
        "A message whose ack is settled is not delivered again: no table has it, and no component is about to store or send it.";
    NothingLeftBehind, "nothing_left_behind",
        "When an agent has reconnected and acked everything, no accepted message is left in a table, except a copy whose delete failed; and no move is unfinished.";
    SubscriptionKept, "subscription_kept",
        "An agent with channels keeps its uaid, and no push for a channel it has is answered that it is gone.";
    FoundWhileConnected, "found_while_connected",
        "While an agent is connected and ready, its record names its node, and stored messages reach it without a request.";
    ReceiptsAreTrue, "receipts_are_true",
        "A receipt says delivered only if the agent acked the message. In the end every acked message whose sender wanted a receipt has one, unless a later one of its topic replaced it.";
    ComesToRest, "comes_to_rest",
        "Every push gets an answer, and an agent that reconnects and acks becomes ready and idle.";
}

/// The messages of one user agent: those that were accepted, those delivered, and those whose acks
/// are settled.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct DeliveryModel {
    accepted: BTreeMap<MessageId, Kind>,
    delivered: BTreeMap<MessageId, Kind>,
    settled: BTreeSet<MessageId>,
    stray: BTreeSet<MessageId>,
    /// The messages of its kind that were accepted before a push with a topic began.
    earlier: BTreeMap<MessageId, BTreeSet<MessageId>>,
    given_up: BTreeSet<Chid>,
    /// The acked messages whose senders want receipts.
    receipts_due: BTreeMap<MessageId, Kind>,
}

/// The channel and topic that a message must share with an earlier one to replace it.
type Kind = (Chid, Option<Topic>);

impl DeliveryModel {
    /// Records that a push with a topic begins, which those that were accepted before cannot replace: their ids may be
    /// greater. Without it, the ids are the order of two messages.
    pub fn begun(&mut self, message: &Message) {
        if message.topic.is_some() {
            let kind = kind(message);
            let of_kind = self.accepted.iter().filter(|(_, other)| **other == kind);
            let earlier = of_kind.map(|(id, _)| *id).collect();
            self.earlier.insert(message.id, earlier);
        }
    }

    /// Records that a push that began with the id `first` goes on with that of this message.
    pub fn begun_as(&mut self, message: &Message, first: MessageId) {
        if let Some(earlier) = self.earlier.get(&first).cloned() {
            self.earlier.insert(message.id, earlier);
        }
    }

    /// Records that the application server received 201.
    pub fn accepted(&mut self, message: &Message) {
        if !message.ttl_is_zero() && !self.is_given_up(message.chid) {
            self.accepted.insert(message.id, kind(message));
        }
    }

    /// Records that the user agent received the message.
    pub fn delivered(&mut self, message: &Message) -> Result<(), Broken<Promise>> {
        self.delivered.insert(message.id, kind(message));
        if self.settled.contains(&message.id) {
            return Err(
                Promise::AckedNeverAgain.broken(format!("{} was delivered again", message.id))
            );
        }
        Ok(())
    }

    /// Records that an endpoint stored the message in two months and the delete in the old one
    /// failed. That row stays until its table is dropped.
    pub fn may_stray(&mut self, id: MessageId) {
        self.stray.insert(id);
    }

    /// Records that the agent gives up a channel: its messages are promised no more.
    pub fn given_up(&mut self, chid: Chid) {
        self.given_up.insert(chid);
        self.accepted.retain(|_, (of, _)| *of != chid);
    }

    /// Whether the agent ever gave up this channel.
    pub fn is_given_up(&self, chid: Chid) -> bool {
        self.given_up.contains(&chid)
    }

    /// Records that the ack is settled: the delete is durable in every table with the message, or
    /// the endpoint knows of the ack. No component will store or send the message again.
    pub fn settled(&mut self, id: MessageId) {
        self.settled.insert(id);
    }

    /// Whether the ack of this message is settled.
    pub fn is_settled(&self, id: MessageId) -> bool {
        self.settled.contains(&id)
    }

    /// Records that the agent acked the message.
    pub fn acked(&mut self, message: &Message) {
        if message.receipt.is_some() {
            self.receipts_due.insert(message.id, kind(message));
        }
    }

    /// Checks the receipts that say delivered, at any time.
    pub fn receipts_are_true(
        &self,
        delivered: &BTreeSet<MessageId>,
    ) -> Result<(), Broken<Promise>> {
        match delivered.iter().find(|id| !self.receipts_due.contains_key(id)) {
            Some(id) => {
                let detail = format!("the receipt of {id} says delivered without an ack");
                Err(Promise::ReceiptsAreTrue.broken(detail))
            }
            None => Ok(()),
        }
    }

    /// Checks that no receipt is missing, when the agent has acked everything.
    pub fn receipts_are_there(
        &self,
        delivered: &BTreeSet<MessageId>,
    ) -> Result<(), Broken<Promise>> {
        let is_missing = |(id, kind): &(&MessageId, &Kind)| {
            !delivered.contains(id) && !self.is_replaced(**id, kind) && !self.is_given_up(kind.0)
        };
        match self.receipts_due.iter().find(is_missing) {
            Some((id, _)) => {
                let detail = format!("{id} was acked and has no receipt");
                Err(Promise::ReceiptsAreTrue.broken(detail))
            }
            None => Ok(()),
        }
    }

    /// An accepted message that was not delivered.
    pub fn missing(&self) -> Option<MessageId> {
        let reached = |id: MessageId, kind: &Kind| {
            self.delivered.contains_key(&id) || self.is_replaced(id, kind)
        };
        self.accepted.iter().find(|(id, kind)| !reached(**id, kind)).map(|(id, _)| *id)
    }

    /// Checks the end, when the agent has reconnected and acked everything. `rows` are the
    /// remaining rows, `oldmonth` is that of its record.
    pub fn rests(
        &self,
        rows: impl IntoIterator<Item = (Month, MessageId)>,
        oldmonth: Option<Month>,
    ) -> Result<(), Broken<Promise>> {
        if let Some(id) = self.missing() {
            return Err(Promise::AcceptedNeverLost.broken(format!("{id} was not delivered")));
        }
        let is_left = |(_, id): &(Month, MessageId)| {
            self.accepted.contains_key(id) && !self.stray.contains(id)
        };
        if let Some((month, id)) = rows.into_iter().find(is_left) {
            return Err(Promise::NothingLeftBehind.broken(format!("{id} is left in {month}")));
        }
        match oldmonth {
            Some(month) => {
                let detail = format!("the move from {month} is not finished");
                Err(Promise::NothingLeftBehind.broken(detail))
            }
            None => Ok(()),
        }
    }

    fn is_replaced(&self, id: MessageId, kind: &Kind) -> bool {
        let is_later = |other: &MessageId| match self.earlier.get(&id) {
            Some(earlier) => *other != id && !earlier.contains(other),
            None => *other > id,
        };
        kind.1.is_some() && self.delivered.iter().any(|(other, of)| of == kind && is_later(other))
    }
}

fn kind(message: &Message) -> Kind {
    (message.chid, message.topic.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use state_machine::ReceiptRequest;
    use state_machine::feed::{FeedKey, FeedName};
    use state_machine::time::{Span, Time};

    const NOVEMBER: Month = match Month::new(2026, 11) {
        Ok(month) => month,
        Err(_) => panic!("November is a month"),
    };

    fn message(number: u128, topic: Option<&str>) -> Message {
        let id = MessageId::from_uuid_v7(number * 2, topic.is_some());
        let topic = topic.and_then(|topic| Topic::parse(topic).ok());
        Message { topic, ..Message::new(id, Chid([1; 16]), Time(0), Span::from_secs(60)) }
    }

    fn promise(kept: Result<(), Broken<Promise>>) -> Promise {
        kept.unwrap_err().rule
    }

    #[test]
    fn a_later_message_of_its_topic_replaces_one_that_was_not_delivered() {
        let [earlier, later] = [1, 2].map(|number| message(number, Some("topic")));
        let mut ledger = DeliveryModel::default();
        ledger.accepted(&earlier);
        assert_eq!(promise(ledger.rests([], None)), Promise::AcceptedNeverLost);
        ledger.delivered(&message(3, Some("other"))).unwrap();
        ledger.delivered(&message(3, None)).unwrap();
        assert_eq!(ledger.missing(), Some(earlier.id));
        ledger.delivered(&later).unwrap();
        assert_eq!(ledger.rests([], None), Ok(()));
        let latest = message(4, Some("topic"));
        ledger.accepted(&latest);
        assert_eq!(ledger.missing(), Some(latest.id));
    }

    #[test]
    fn a_message_of_a_channel_that_was_given_up_may_get_lost() {
        let mut ledger = DeliveryModel::default();
        let [before, after] = [1, 2].map(|number| message(number, None));
        ledger.accepted(&before);
        ledger.given_up(before.chid);
        ledger.accepted(&after);
        assert_eq!(ledger.rests([(NOVEMBER, before.id)], None), Ok(()));
        assert!(ledger.is_given_up(before.chid) && !ledger.is_given_up(Chid([2; 16])));
    }

    #[test]
    fn a_message_with_a_ttl_of_zero_may_get_lost() {
        let mut ledger = DeliveryModel::default();
        ledger.accepted(&Message { ttl: Span::ZERO, ..message(1, None) });
        assert_eq!(ledger.rests([], None), Ok(()));
    }

    #[test]
    fn a_message_may_be_delivered_again_until_its_ack_is_settled() {
        let mut ledger = DeliveryModel::default();
        let message = message(1, None);
        assert_eq!([ledger.delivered(&message), ledger.delivered(&message)], [Ok(()), Ok(())]);
        ledger.settled(message.id);
        assert!(ledger.is_settled(message.id));
        assert_eq!(promise(ledger.delivered(&message)), Promise::AckedNeverAgain);
    }

    #[test]
    fn only_a_copy_whose_delete_failed_or_a_refused_message_may_be_left() {
        let mut ledger = DeliveryModel::default();
        let [accepted, refused] = [1, 2].map(|number| message(number, None));
        ledger.accepted(&accepted);
        ledger.delivered(&accepted).unwrap();
        assert_eq!(ledger.rests([(NOVEMBER, refused.id)], None), Ok(()));
        let left = [(NOVEMBER, accepted.id)];
        assert_eq!(promise(ledger.rests(left, None)), Promise::NothingLeftBehind);
        assert_eq!(promise(ledger.rests([], Some(NOVEMBER))), Promise::NothingLeftBehind);
        ledger.may_stray(accepted.id);
        assert_eq!(ledger.rests(left, None), Ok(()));
    }

    #[test]
    fn a_receipt_needs_an_ack_and_an_ack_a_receipt() {
        let key = FeedKey::parse("/m/a").unwrap();
        let subscription = FeedName::receipts(Time(0), 1);
        let receipt = Some(Box::new(ReceiptRequest { subscription, key }));
        let wanting = |message| Message { receipt: receipt.clone(), ..message };
        let [earlier, later] = [1, 2].map(|number| wanting(message(number, Some("topic"))));
        let mut ledger = DeliveryModel::default();
        let [none, one] = [BTreeSet::new(), BTreeSet::from([earlier.id])];
        assert_eq!(promise(ledger.receipts_are_true(&one)), Promise::ReceiptsAreTrue);
        ledger.acked(&message(3, None));
        assert_eq!(ledger.receipts_are_there(&none), Ok(()), "no receipt is wanted");
        ledger.acked(&earlier);
        assert_eq!(
            [ledger.receipts_are_true(&one), ledger.receipts_are_there(&one)],
            [Ok(()), Ok(())]
        );
        assert_eq!(promise(ledger.receipts_are_there(&none)), Promise::ReceiptsAreTrue);
        ledger.delivered(&later).unwrap();
        assert_eq!(ledger.receipts_are_there(&none), Ok(()), "it was replaced");
    }

    #[test]
    fn the_promises_are_named_once() {
        let names: BTreeSet<&str> = Promise::ALL.iter().map(|promise| promise.name()).collect();
        assert_eq!(names.len(), Promise::ALL.len());
        assert!(Promise::ALL.iter().all(|promise| promise.sentence().ends_with('.')));
    }
}
