//! Receipts: expected, written with the delete of an acked message, expired, cancelled.

use futures_util::future::try_join_all;
use state_machine::feed::{FeedKey, FeedSyncId};
use state_machine::{AckCode, Message, MessageKey, Receipt, ReceiptRequest, Span, Time};
use storage::{ExpectedReceipt, SettledMessages, StoreAnswer, StoreOp, Stored};

use super::world::{
    NEW, NOW, OLD, PAGE, UNMADE, World, agent, chid, chids, message, month, topical,
};
use crate::names::{subscription, until_done, with_receipt};
use crate::store_calls::StoreCalls;

const ACKED: AckCode = AckCode::Delivered;

/// The message with the wish for a receipt.
fn wanting(message: Message) -> Message {
    with_receipt(message, subscription())
}

fn expected_of(message: &Message) -> ExpectedReceipt {
    ExpectedReceipt::of(message).unwrap()
}

impl World {
    /// Expects the receipt of a message and stores it for agent 1.
    async fn send(&self, name: &str, message: &Message) {
        assert_eq!(self.expect_receipt(expected_of(message), 100).await, Ok(true));
        self.put(name, message).await;
    }

    /// Sends a message with the wish for a receipt.
    async fn sent(&self, name: &str, message: Message) -> Message {
        let wanted = wanting(message);
        self.send(name, &wanted).await;
        wanted
    }

    async fn settle(&self, name: &str, messages: &[(MessageKey, AckCode)]) -> SettledMessages {
        let months = vec![month(name)];
        self.settle_messages(agent(1), months, messages.to_vec()).await.unwrap()
    }

    /// The receipts that were published after `after`: key and state.
    async fn receipts_after(&self, after: u64) -> Vec<(String, Receipt)> {
        self.publish(subscription(), None, 100).await.unwrap();
        let page = self.fetch_feed(subscription(), FeedSyncId(after), PAGE).await.unwrap();
        let updates = page.map(|page| page.updates).unwrap_or_default();
        let receipt = |value| Receipt::parse(&value).unwrap();
        updates.into_iter().map(|it| (it.key.to_string(), receipt(it.value.unwrap()))).collect()
    }

    /// Expires everything that is due at a time after the test's messages.
    async fn expire(&self, now: Time) -> u64 {
        let mut receipts = 0;
        until_done(async || {
            let expired = self.expire_receipts(now).await.unwrap();
            receipts += expired.receipts;
            expired.is_more
        })
        .await;
        receipts
    }

    /// The messages that count for the bound of the subscription: one more is admitted up to a bound above them.
    async fn messages_counted(&self) -> Option<u64> {
        self.fetch_feed(subscription(), FeedSyncId::NONE, PAGE).await.unwrap()?;
        let more = expected_of(&wanting(message(1_000_000)));
        let mut bound = 0;
        until_done(async || {
            bound += 1;
            !self.expect_receipt(more.clone(), bound).await.unwrap()
        })
        .await;
        self.cancel_receipt(more).await.unwrap();
        Some(bound - 1)
    }
}

fn key_of(message: &Message) -> String {
    message.receipt.as_ref().unwrap().key.to_string()
}

/// After the deadline of every message here.
const LATER: Time = Time(NOW.0 + 3_600_000);

pub(crate) async fn a_message_is_fetched_with_its_receipt(world: World) {
    let wanted = [wanting(message(1)), wanting(topical(2, "t"))];
    for message in &wanted {
        world.send(NEW, message).await;
    }
    let world = world.restart().await;
    let mut fetched = world.waiting(NEW).await;
    fetched.sort_by_key(|message| message.id);
    assert_eq!(fetched, wanted);
}

pub(crate) async fn an_acked_message_has_the_receipt_of_its_code(world: World) {
    let codes = [AckCode::Delivered, AckCode::DecryptionError, AckCode::NotHandled];
    let messages: Vec<_> = (1..=3).map(|number| wanting(message(number))).collect();
    let mut acked = Vec::new();
    for (message, code) in messages.iter().zip(codes) {
        world.send(NEW, message).await;
        acked.push((message.key(), code));
    }
    assert_eq!(world.receipts_after(0).await, []);
    let settled = world.settle(NEW, &acked).await;
    let subscriptions = vec![subscription()];
    assert_eq!(settled, SettledMessages { deleted: 3, subscriptions });
    assert_eq!(world.waiting(NEW).await, []);
    let mut receipts = world.receipts_after(0).await;
    receipts.sort_by_key(|(key, _)| key.clone());
    let delivered = |(message, code)| (key_of(message), Receipt::Delivered(code));
    assert_eq!(receipts, messages.iter().zip(codes).map(delivered).collect::<Vec<_>>());
    assert_eq!(world.expire(LATER).await, 0);
}

pub(crate) async fn a_message_without_a_receipt_is_only_deleted(world: World) {
    let plain = message(1);
    world.put(NEW, &plain).await;
    let settled = world.settle(NEW, &[(plain.key(), ACKED)]).await;
    assert_eq!(settled, SettledMessages { deleted: 1, subscriptions: Vec::new() });
    assert_eq!(world.messages_counted().await, None);
}

pub(crate) async fn a_message_beside_acked_ones_is_deleted_and_keeps_its_receipt(world: World) {
    let acked = world.sent(NEW, message(1)).await;
    let expired = world.sent(NEW, message(2)).await;
    let plain = message(3);
    world.put(NEW, &plain).await;
    let op = StoreOp::Delete {
        uaid: agent(1),
        months: vec![month(UNMADE), month(OLD), month(NEW)],
        messages: [&plain, &acked, &expired].map(Message::key).to_vec(),
        acks: vec![(acked.id, ACKED)],
    };
    let settled = SettledMessages { deleted: 3, subscriptions: vec![subscription()] };
    assert_eq!(world.execute(op).await, Ok(StoreAnswer::Deleted(settled)));
    assert_eq!(world.waiting(NEW).await, []);
    let receipt = Receipt::Delivered(AckCode::Delivered);
    assert_eq!(world.receipts_after(0).await, [(key_of(&acked), receipt)]);
    assert_eq!(world.expire(LATER).await, 1);
    assert_eq!(world.receipts_after(1).await, [(key_of(&expired), Receipt::Expired)]);
}

pub(crate) async fn a_message_without_a_receipt_is_withdrawn(world: World) {
    let plain = message(1);
    world.put(NEW, &plain).await;
    for is_there in [true, false] {
        let gone = world.withdraw_message(agent(1), vec![month(OLD), month(NEW)], plain.key());
        assert_eq!(gone.await, Ok(is_there));
    }
    assert_eq!(world.waiting(NEW).await, []);
}

pub(crate) async fn an_ack_again_changes_no_receipt(world: World) {
    let wanted = world.sent(NEW, message(1)).await;
    let acked = [(wanted.key(), ACKED)];
    world.settle(NEW, &acked).await;
    assert_eq!(world.receipts_after(0).await.len(), 1);
    assert_eq!(world.settle(NEW, &acked).await, SettledMessages::default());
    // As after a crash between the receipt and the delete.
    for code in [AckCode::Delivered, AckCode::NotHandled] {
        world.put(NEW, &wanted).await;
        let acked = [(wanted.key(), code)];
        let settled = world.settle(NEW, &acked).await;
        assert_eq!(settled, SettledMessages { deleted: 1, subscriptions: Vec::new() });
        assert_eq!(world.receipts_after(1).await, []);
    }
    assert_eq!(world.messages_counted().await, Some(1));
}

pub(crate) async fn an_ack_needs_the_right_agent_channel_and_month(world: World) {
    let wanted = world.sent(NEW, message(1)).await;
    let other = MessageKey { chid: chid(2), ..wanted.key() };
    for (uaid, name, key) in [
        (agent(2), NEW, wanted.key()),
        (agent(1), OLD, wanted.key()),
        (agent(1), UNMADE, wanted.key()),
        (agent(1), NEW, other),
    ] {
        let settled = world.settle_messages(uaid, vec![month(name)], vec![(key, ACKED)]).await;
        assert_eq!(settled, Ok(SettledMessages::default()));
    }
    assert_eq!(world.receipts_after(0).await, []);
    let months = vec![month(UNMADE), month(OLD), month(NEW)];
    let settled = world.settle_messages(agent(1), months, vec![(wanted.key(), ACKED)]).await;
    assert_eq!(settled.unwrap().deleted, 1);
}

pub(crate) async fn a_topic_message_is_acked_without_its_topic_being_known(world: World) {
    let wanted = world.sent(NEW, topical(1, "t")).await;
    let key = MessageKey { topic: None, ..wanted.key() };
    assert_eq!(world.settle(NEW, &[(key, ACKED)]).await.deleted, 1);
    let receipt = Receipt::Delivered(AckCode::Delivered);
    assert_eq!(world.receipts_after(0).await, [(key_of(&wanted), receipt)]);
}

pub(crate) async fn a_replaced_message_has_no_receipt(world: World) {
    let [first, second] = [1, 2].map(|number| wanting(topical(number, "t")));
    world.send(NEW, &first).await;
    world.send(NEW, &second).await;
    assert_eq!(world.messages_counted().await, Some(1));
    // The ack of the replaced message is late.
    world.settle(NEW, &[(first.key(), ACKED)]).await;
    assert_eq!(world.receipts_after(0).await, []);
    assert_eq!(world.expire(LATER).await, 1);
    assert_eq!(world.receipts_after(0).await, [(key_of(&second), Receipt::Expired)]);
}

pub(crate) async fn an_outranked_message_changes_no_receipt(world: World) {
    let [lesser, there] = [1, 2].map(|number| wanting(topical(number, "t")));
    world.send(NEW, &there).await;
    let stored = world.store_message(agent(1), month(NEW), lesser).await;
    assert_eq!(stored, Ok(Stored::Outranked(there.id)));
    assert_eq!(world.messages_counted().await, Some(1));
    assert_eq!(world.expire(LATER).await, 1);
    assert_eq!(world.receipts_after(0).await, [(key_of(&there), Receipt::Expired)]);
}

pub(crate) async fn a_message_stored_again_keeps_its_receipt(world: World) {
    let wanted = wanting(topical(1, "t"));
    for _ in 0..2 {
        world.send(NEW, &wanted).await;
    }
    assert_eq!(world.messages_counted().await, Some(1));
    assert_eq!(world.expire(LATER).await, 1);
}

pub(crate) async fn an_expired_message_has_the_receipt_once(world: World) {
    let wanted = world.sent(NEW, message(1)).await;
    assert_eq!(world.expire(wanted.kept_until() - Span(1)).await, 0);
    assert_eq!(world.receipts_after(0).await, []);
    assert_eq!(world.expire(wanted.kept_until()).await, 1);
    assert_eq!(world.receipts_after(0).await, [(key_of(&wanted), Receipt::Expired)]);
    assert_eq!(world.expire(LATER).await, 0);
    assert_eq!(world.receipts_after(1).await, []);
}

pub(crate) async fn an_ack_after_the_end_replaces_expired(world: World) {
    let wanted = world.sent(NEW, message(1)).await;
    world.expire(LATER).await;
    world.receipts_after(0).await;
    world.settle(NEW, &[(wanted.key(), ACKED)]).await;
    let receipt = Receipt::Delivered(AckCode::Delivered);
    assert_eq!(world.receipts_after(1).await, [(key_of(&wanted), receipt)]);
}

pub(crate) async fn the_row_of_a_receipt_waits_for_an_ack_under_way(world: World) {
    let wanted = wanting(Message { ttl: Span::from_secs(1), ..message(1) });
    world.send(NEW, &wanted).await;
    assert_eq!(world.waiting(NEW).await, [], "its TTL has ended");
    assert_eq!(world.delete_expired(NOW).await, Ok(0));
    assert_eq!(world.settle(NEW, &[(wanted.key(), ACKED)]).await.deleted, 1);
    assert_eq!(world.receipts_after(0).await.len(), 1);
}

pub(crate) async fn a_withdrawn_or_cancelled_message_has_no_receipt(world: World) {
    let [withdrawn, refused] = [1, 2].map(|number| wanting(message(number)));
    world.send(NEW, &withdrawn).await;
    for is_there in [true, false] {
        let gone = world.withdraw_message(agent(1), vec![month(NEW)], withdrawn.key()).await;
        assert_eq!(gone, Ok(is_there));
    }
    assert_eq!(world.expect_receipt(expected_of(&refused), 100).await, Ok(true));
    for _ in 0..2 {
        assert_eq!(world.cancel_receipt(expected_of(&refused)).await, Ok(()));
    }
    assert_eq!(world.messages_counted().await, Some(0));
    assert_eq!(world.expire(LATER).await, 0);
    assert_eq!(world.receipts_after(0).await, []);
}

pub(crate) async fn a_deleted_message_is_expected_until_it_has_expired(world: World) {
    let wanted = world.sent(NEW, message(1)).await;
    let deleted = world.delete_messages(agent(1), vec![month(NEW)], vec![wanted.key()]).await;
    assert_eq!(deleted, Ok(1));
    assert_eq!(world.expire(LATER).await, 1);
}

pub(crate) async fn a_subscription_has_a_bound_and_receipts_count(world: World) {
    let messages: Vec<_> = (1..=3).map(|number| wanting(message(number))).collect();
    let expect = |at: usize| world.expect_receipt(expected_of(&messages[at]), 2);
    assert_eq!((expect(0).await, expect(1).await), (Ok(true), Ok(true)));
    assert_eq!(expect(2).await, Ok(false));
    assert_eq!(expect(1).await, Ok(true), "it is counted already");
    world.put(NEW, &messages[0]).await;
    world.settle(NEW, &[(messages[0].key(), ACKED)]).await;
    assert_eq!(expect(2).await, Ok(false), "a receipt occupies the place of its message");
    world.cancel_receipt(expected_of(&messages[1])).await.unwrap();
    assert_eq!(expect(2).await, Ok(true));
    assert_eq!(world.messages_counted().await, Some(2));
}

pub(crate) async fn receipts_expected_at_once_do_not_exceed_the_bound(world: World) {
    let store = world.shared();
    let expect = (1..=20).map(|number| {
        let expected = expected_of(&wanting(message(number)));
        let store = store.clone();
        async move { store.expect_receipt(expected, 5).await }
    });
    let admitted = try_join_all(expect).await.unwrap();
    assert_eq!(admitted.into_iter().filter(|is_admitted| *is_admitted).count(), 5);
    assert_eq!(world.messages_counted().await, Some(5));
}

pub(crate) async fn a_receipt_survives_a_move_to_another_month(world: World) {
    let [plain, topical_one] = [wanting(message(1)), wanting(topical(2, "t"))];
    world.send(OLD, &plain).await;
    world.send(OLD, &topical_one).await;
    world.move_messages(agent(1), month(OLD), month(NEW)).await.unwrap();
    let acked = [(plain.key(), ACKED), (topical_one.key(), ACKED)];
    assert_eq!(world.settle(NEW, &acked).await.deleted, 2);
    assert_eq!(world.receipts_after(0).await.len(), 2);
}

pub(crate) async fn a_message_that_a_move_drops_has_no_receipt(world: World) {
    for (topic, [of_old, of_new]) in [("t", [1, 2]), ("u", [4, 3])] {
        world.send(OLD, &wanting(topical(of_old, topic))).await;
        world.send(NEW, &wanting(topical(of_new, topic))).await;
    }
    world.move_messages(agent(1), month(OLD), month(NEW)).await.unwrap();
    assert_eq!(world.expire(LATER).await, 2);
    let expired = [(2, "t"), (3, "u")]
        .map(|(number, topic)| (key_of(&wanting(topical(number, topic))), Receipt::Expired));
    assert_eq!(world.receipts_after(0).await, expired);
}

pub(crate) async fn all_that_are_due_at_once_expire(world: World) {
    const DUE: u64 = 150;
    for number in 0..DUE {
        // Each digit beside its complement: keys with the same sum of bytes, which an engine may keep together.
        let digits = format!("{number:03}");
        let pairs = digits.bytes().map(|digit| [digit, b'0' + b'9' - digit].map(char::from));
        let key = format!("/m/{}", pairs.flatten().collect::<String>());
        let request =
            ReceiptRequest { subscription: subscription(), key: FeedKey::parse(&key).unwrap() };
        let expected = ExpectedReceipt { request, deadline: NOW };
        assert_eq!(world.expect_receipt(expected, 1000).await, Ok(true));
    }
    assert_eq!(world.expire(NOW).await, DUE);
    assert_eq!(world.expire(NOW).await, 0);
}

pub(crate) async fn a_subscription_ends_with_all_its_receipts(world: World) {
    let messages: Vec<_> = (1..=3).map(|number| wanting(message(number))).collect();
    for message in &messages {
        world.send(NEW, message).await;
    }
    world.settle(NEW, &[(messages[0].key(), ACKED)]).await;
    world.receipts_after(0).await;
    world.settle(NEW, &[(messages[1].key(), ACKED)]).await;
    let end = subscription().receipts_end().unwrap();
    world.expire(end - Span::from_secs(1)).await;
    assert!(world.messages_counted().await.is_some());
    assert_eq!(world.feeds(None, 10).await, Ok(Vec::new()), "it is not listed");
    world.expire(end + Span::from_secs(1)).await;
    assert_eq!(world.messages_counted().await, None);
    assert_eq!(world.fetch_feed(subscription(), FeedSyncId::NONE, PAGE).await, Ok(None));
}

pub(crate) async fn what_is_expected_when_its_subscription_has_ended_is_dropped(world: World) {
    world.send(NEW, &wanting(message(1))).await;
    let end = subscription().receipts_end().unwrap();
    assert_eq!(world.expire(end + Span::from_secs(1)).await, 0, "no receipt is written");
    assert_eq!(world.messages_counted().await, None);
    assert_eq!(world.fetch_feed(subscription(), FeedSyncId::NONE, PAGE).await, Ok(None));
}

pub(crate) async fn an_ack_and_the_end_at_once_leave_delivered(world: World) {
    for round in 1..=20 {
        let wanted = wanting(message(round));
        world.add_channels(agent(1), month(NEW), chids([1])).await.unwrap();
        world.send(NEW, &wanted).await;
        let (one, other) = (world.shared(), world.shared());
        let acked = vec![(wanted.key(), ACKED)];
        let (expired, settled) = tokio::join!(
            tokio::spawn(async move { one.expire_receipts(LATER).await }),
            tokio::spawn(
                async move { other.settle_messages(agent(1), vec![month(NEW)], acked).await }
            ),
        );
        expired.unwrap().unwrap();
        settled.unwrap().unwrap();
        let last =
            world.receipts_after(0).await.into_iter().rfind(|(key, _)| *key == key_of(&wanted));
        let receipt = Receipt::Delivered(AckCode::Delivered);
        assert_eq!(last, Some((key_of(&wanted), receipt)), "{round}");
    }
}
