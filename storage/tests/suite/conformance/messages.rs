//! Storing and deleting messages.

use std::slice;

use bytes::Bytes;
use state_machine::{Encoding, Message, MessageKey, Payload, Urgency};
use storage::{StoreError, Stored};

use crate::conformance::world::*;
use crate::store_calls::StoreCalls;

/// Size of the largest body in the old encoding by default.
const AESGCM_BYTES_MAX: usize = 5630;

pub(crate) async fn every_kind_of_message_is_fetched_as_it_was_stored(world: World) {
    let aesgcm = Encoding::AesGcm {
        encryption: "salt=\u{e9}\u{20ac}".into(),
        crypto_key: "dh=BNoRDbb84JGm8g5Z5CFxurSqsXWJ11ItfXEWYVLE85Y7".into(),
    };
    let all_bytes = Bytes::from_iter((0..=255).cycle().take(AESGCM_BYTES_MAX));
    let messages = [
        Message { payload: None, urgency: Urgency::VeryLow, ..message(1) },
        Message { urgency: Urgency::Low, ..topical(2, "a-Topic_of-32-characters-at-most") },
        Message { chid: chid(2), urgency: Urgency::High, ..sized(3, 8192) },
        sized(4, 0),
        Message { payload: Some(Payload { data: all_bytes, encoding: aesgcm }), ..message(5) },
        Message { payload: None, ..topical(6, "x") },
    ];
    for message in &messages {
        world.put(NEW, message).await;
    }
    assert_eq!(world.waiting(NEW).await, messages);
}

pub(crate) async fn offers_are_counted_in_the_row_and_move_with_it(world: World) {
    let [plain, with_topic] = [message(1), topical(2, "t")];
    for message in [&plain, &with_topic, &message(3)] {
        world.put(OLD, message).await;
    }
    let offered = vec![plain.key(), with_topic.key()];
    for _connection in 0..2 {
        assert_eq!(world.record_offers(agent(1), month(OLD), offered.clone()).await, Ok(()));
    }
    let expected =
        [Message { offers: 2, ..plain }, Message { offers: 2, ..with_topic }, message(3)];
    assert_eq!(world.waiting(OLD).await, expected);
    world.move_messages(agent(1), month(OLD), month(NEW)).await.unwrap();
    assert_eq!(world.waiting(NEW).await, expected);
    world.put(NEW, &topical(4, "t")).await;
    assert_eq!(world.waiting(NEW).await.last(), Some(&topical(4, "t")), "it is another message");
}

pub(crate) async fn an_offer_of_a_message_that_is_not_stored_writes_nothing(world: World) {
    world.put(NEW, &topical(2, "t")).await;
    let replaced = topical(1, "t").key();
    let elsewhere = Message { chid: chid(2), ..topical(2, "t") }.key();
    for missing in [message(1).key(), replaced, elsewhere] {
        assert_eq!(world.record_offers(agent(1), month(NEW), vec![missing]).await, Ok(()));
    }
    let of_another = world.record_offers(agent(2), month(NEW), vec![topical(2, "t").key()]).await;
    assert_eq!(of_another, Ok(()));
    assert_eq!(world.waiting(NEW).await, [topical(2, "t")]);
    let unmade = world.record_offers(agent(1), month(UNMADE), vec![message(1).key()]).await;
    assert_eq!(unmade, Ok(()), "a month without a table is skipped");
}

pub(crate) async fn a_message_of_an_unregistered_channel_is_not_stored(world: World) {
    for refused in [message(1), topical(2, "t")] {
        let refused = Message { chid: chid(9), ..refused };
        let stored = world.store_message(agent(1), month(NEW), refused).await;
        assert_eq!(stored, Ok(Stored::NoSuchChannel));
    }
    world.add_channels(agent(1), month(NEW), chids([9])).await.unwrap();
    assert_eq!(world.waiting(NEW).await, []);
}

pub(crate) async fn a_channel_registered_in_another_month_does_not_count(world: World) {
    world.add_channels(agent(1), month(OLD), chids([9])).await.unwrap();
    let message = Message { chid: chid(9), ..message(1) };
    let stored = world.store_message(agent(1), month(NEW), message).await;
    assert_eq!(stored, Ok(Stored::NoSuchChannel));
}

pub(crate) async fn storing_a_message_again_stores_it_once(world: World) {
    for message in [message(1), topical(2, "t"), message(1), topical(2, "t")] {
        world.put(NEW, &message).await;
    }
    assert_eq!(world.waiting(NEW).await, [message(1), topical(2, "t")]);
}

pub(crate) async fn a_greater_id_replaces_the_message_of_its_topic(world: World) {
    world.put(NEW, &topical(1, "t")).await;
    world.put(NEW, &message(2)).await;
    let replacement = Message { payload: None, urgency: Urgency::High, ..topical(3, "t") };
    world.put(NEW, &replacement).await;
    assert_eq!(world.waiting(NEW).await, [message(2), replacement]);
}

pub(crate) async fn a_lesser_id_is_outranked_by_the_one_that_is_there_and_writes_nothing(
    world: World,
) {
    let [lesser, there] = [1, 2].map(|number| topical(number, "t"));
    world.put(NEW, &there).await;
    let outranked = world.store_message(agent(1), month(NEW), lesser.clone()).await;
    assert_eq!(outranked, Ok(Stored::Outranked(there.id)));
    assert_eq!(world.waiting(NEW).await, slice::from_ref(&there));
    let id = lesser.id.above(there.id).unwrap();
    let above = Message { id, ..lesser };
    for _again in 0..2 {
        world.put(NEW, &above).await;
        assert_eq!(world.waiting(NEW).await, slice::from_ref(&above));
    }
    let late = world.store_message(agent(1), month(NEW), there).await;
    assert_eq!(late, Ok(Stored::Outranked(id)), "a write that was executed late");
}

pub(crate) async fn a_message_of_an_unregistered_channel_is_not_outranked(world: World) {
    world.put(NEW, &topical(2, "t")).await;
    world.remove_channel(agent(1), vec![month(NEW)], chid(1)).await.unwrap();
    let stored = world.store_message(agent(1), month(NEW), topical(1, "t")).await;
    assert_eq!(stored, Ok(Stored::NoSuchChannel));
}

pub(crate) async fn topics_of_other_channels_and_agents_are_other_topics(world: World) {
    let other_channel = Message { chid: chid(2), ..topical(2, "t") };
    let other_topic = topical(3, "T");
    for message in [&topical(1, "t"), &other_channel, &other_topic] {
        world.put(NEW, message).await;
    }
    world.store_message(agent(2), month(NEW), topical(4, "t")).await.unwrap();
    world.put(OLD, &topical(5, "t")).await;
    assert_eq!(world.waiting(NEW).await, [topical(1, "t"), other_channel, other_topic]);
    assert_eq!(world.waiting_for(agent(2), NEW).await, [topical(4, "t")]);
    assert_eq!(world.waiting(OLD).await, [topical(5, "t")]);
}

pub(crate) async fn a_message_cannot_be_stored_where_there_is_no_table(world: World) {
    let refused = world.store_message(agent(1), month(UNMADE), message(1)).await;
    assert_eq!(refused, Err(StoreError::NoSuchMonth(month(UNMADE))));
    world.drop_month(month(OLD)).await.unwrap();
    let refused = world.store_message(agent(1), month(OLD), message(1)).await;
    assert_eq!(refused, Err(StoreError::NoSuchMonth(month(OLD))));
}

pub(crate) async fn a_deleted_message_is_gone_and_no_other(world: World) {
    for number in 1..=5 {
        world.put(NEW, &message(number)).await;
    }
    let done = vec![message(4).key(), message(2).key()];
    assert_eq!(world.delete_messages(agent(1), vec![month(NEW)], done).await, Ok(2));
    assert_eq!(world.waiting(NEW).await, [message(1), message(3), message(5)]);
}

pub(crate) async fn deleting_what_is_not_there_counts_nothing(world: World) {
    world.put(NEW, &message(1)).await;
    let delete = |messages| world.delete_messages(agent(1), vec![month(NEW)], messages);
    assert_eq!(delete(vec![]).await, Ok(0));
    assert_eq!(delete(vec![message(2).key()]).await, Ok(0));
    assert_eq!(delete(vec![message(1).key(), message(1).key()]).await, Ok(1));
    assert_eq!(delete(vec![message(1).key()]).await, Ok(0));
}

pub(crate) async fn deleting_needs_the_right_agent_and_channel(world: World) {
    world.put(NEW, &message(1)).await;
    let other_channel = MessageKey { chid: chid(2), ..message(1).key() };
    for (uaid, reference) in [(agent(1), other_channel), (agent(2), message(1).key())] {
        let deleted = world.delete_messages(uaid, vec![month(NEW)], vec![reference]).await;
        assert_eq!(deleted, Ok(0));
    }
    assert_eq!(world.waiting(NEW).await, [message(1)]);
}

pub(crate) async fn a_topic_message_is_deleted_without_its_topic_being_known(world: World) {
    world.put(NEW, &topical(1, "t")).await;
    let reference = MessageKey { topic: None, ..topical(1, "t").key() };
    assert_eq!(world.delete_messages(agent(1), vec![month(NEW)], vec![reference]).await, Ok(1));
    assert_eq!(world.waiting(NEW).await, []);
}

pub(crate) async fn the_replacement_of_a_deleted_message_stays(world: World) {
    world.put(NEW, &topical(1, "t")).await;
    world.put(NEW, &topical(2, "t")).await;
    let replaced = topical(1, "t").key();
    for reference in [replaced.clone(), MessageKey { topic: None, ..replaced }] {
        let deleted = world.delete_messages(agent(1), vec![month(NEW)], vec![reference]).await;
        assert_eq!(deleted, Ok(0));
    }
    assert_eq!(world.waiting(NEW).await, [topical(2, "t")]);
}

pub(crate) async fn messages_are_deleted_in_each_month_named(world: World) {
    world.put(OLD, &message(1)).await;
    world.put(NEW, &message(1)).await;
    world.put(NEW, &message(2)).await;
    let both = vec![message(1).key(), message(2).key()];
    let months = vec![month(UNMADE), month(OLD), month(NEW)];
    assert_eq!(world.delete_messages(agent(1), vec![], both.clone()).await, Ok(0));
    assert_eq!(world.delete_messages(agent(1), months, both.clone()).await, Ok(3));
    assert_eq!(world.waiting(OLD).await, []);
    assert_eq!(world.waiting(NEW).await, []);
    assert_eq!(world.delete_messages(agent(1), vec![month(UNMADE)], both).await, Ok(0));
}
