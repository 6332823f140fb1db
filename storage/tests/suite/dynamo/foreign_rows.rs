//! Rows that other software wrote, in the shapes of the original, and the shapes of our own.

mod acked;

use std::collections::BTreeSet;

use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;
use state_machine::{
    BridgeName, BridgeRecipient, Encoding, Message, MessageId, MessageKey, Month, NodeId, Payload,
    Span, Time, Topic, Urgency,
};
use storage::{PageLimit, RegisterResult, Registration, Store, StoreAdmin, StoreError, Stored};
use storage_dynamodb::Dynamo;

use crate::dynamo::things::*;
use crate::names::payload;
use crate::store_calls::StoreCalls;

/// An engine with tables of its own, and those as they are.
struct World {
    store: Dynamo,
    tables: Tables,
}

impl World {
    /// With tables for November and December in which the channel is registered.
    async fn open() -> Self {
        let (tables, store) = Tables::with_node();
        for month in [november(), december()] {
            store.ensure_month(month).await.unwrap();
            store.add_channels(AGENT, month, BTreeSet::from([CHANNEL])).await.unwrap();
        }
        Self { store, tables }
    }

    async fn with_original_rows() -> Self {
        let world = Self::open().await;
        original_rows(&world).await;
        world
    }

    async fn put_record(&self, attributes: &[(&str, AttributeValue)]) {
        let uaid = [("uaid", s(&AGENT.to_string()))];
        self.tables.put("router", uaid.iter().chain(attributes)).await;
    }

    async fn put_row<'a>(
        &self,
        sort_key: &str,
        more: impl IntoIterator<Item = (&'a str, AttributeValue)>,
    ) {
        let keys = [("uaid", s(&AGENT.to_string())), ("chidmessageid", s(sort_key))];
        let row: Vec<_> = keys.into_iter().chain(more).collect();
        self.tables.put("message_2026_11", &row).await;
    }

    /// The rows of a table that hold messages, by sort key.
    async fn message_rows(&self, month: Month) -> Vec<Item> {
        let mut rows = self.tables.rows(&format!("message_{month}")).await;
        rows.retain(|row| row["chidmessageid"] != s(" "));
        rows
    }

    async fn store(&self, month: Month, message: Message) {
        let stored = self.store.store_message(AGENT, month, message).await;
        assert_eq!(stored, Ok(Stored::Done));
    }

    async fn waiting(&self, month: Month) -> Vec<Message> {
        let limit = PageLimit { rows: 100, bytes: 100_000 };
        let page = self.store.fetch_messages(AGENT, month, None, limit, NOW).await.unwrap();
        assert_eq!(page.next, None);
        page.messages
    }

    async fn delete(&self, message: MessageKey) -> usize {
        self.store.delete_messages(AGENT, vec![november()], vec![message]).await.unwrap()
    }
}

fn headers(pairs: &[(&str, &str)]) -> AttributeValue {
    AttributeValue::M(pairs.iter().map(|(name, value)| ((*name).to_owned(), s(value))).collect())
}

/// Random ids, as the original draws them.
const RANDOM: [&str; 3] = [
    "9d7f2c1e5b8a4e0f9c3d6a7b8c9d0e1f",
    "ffffffffffff4fffbfffffffffffffff",
    "00000000000040008000000000000000",
];
const SECONDS: u64 = NOW.0 / 1000;

/// A row of each kind that the original wrote, without its keys.
fn attributes(update_id: &str) -> [(&'static str, AttributeValue); 3] {
    [("updateid", s(update_id)), ("ttl", n(60)), ("timestamp", n(SECONDS - 1))]
}

/// "Non-versioned", timestamped and of a topic; the last has no payload.
async fn original_rows(world: &World) -> [String; 3] {
    let keys = [
        format!("{CHANNEL}:gAAAAABYaLKq=:more"),
        format!("02:1793699999000000:{CHANNEL}"),
        format!("01:{CHANNEL}:a-topic"),
    ];
    let aes128gcm = [("data", s("_-8")), ("headers", headers(&[("encoding", "aes128gcm")]))];
    let aesgcm =
        headers(&[("encoding", "aesgcm"), ("encryption", "salt=x"), ("crypto_key", "dh=y")]);
    world.put_row(&keys[0], attributes(RANDOM[0]).into_iter().chain(aes128gcm)).await;
    let aesgcm = [("data", s("_-8")), ("headers", aesgcm)];
    world.put_row(&keys[1], attributes(RANDOM[1]).into_iter().chain(aesgcm)).await;
    world.put_row(&keys[2], attributes(RANDOM[2])).await;
    keys
}

/// The messages of the rows, the topic's first: its id is the least.
fn original_messages() -> [Message; 3] {
    let of = |id, encoding| Message {
        id: MessageId::parse(id).unwrap(),
        accepted_at: NOW - Span::from_secs(1),
        payload: Some(Payload { data: Bytes::from_static(&[0xff, 0xef]), encoding }),
        ..message(1)
    };
    let aesgcm = Encoding::AesGcm { encryption: "salt=x".into(), crypto_key: "dh=y".into() };
    let topical = Message { payload: None, ..of(RANDOM[2], Encoding::Aes128Gcm) };
    [
        Message { topic: Some(Topic::parse("a-topic").unwrap()), ..topical },
        of(RANDOM[0], Encoding::Aes128Gcm),
        of(RANDOM[1], aesgcm),
    ]
}

#[tokio::test]
async fn messages_of_autopush_are_delivered_before_ours() {
    let world = World::with_original_rows().await;
    world.store(november(), message(1)).await;
    let [first, second, third] = original_messages();
    assert_eq!(world.waiting(november()).await, [first, second, third, message(1)]);
}

/// An acknowledgement knows neither the topic nor the sort key.
#[tokio::test]
async fn messages_of_autopush_are_deleted_by_their_returned_ids() {
    for topic_is_known in [true, false] {
        let world = World::open().await;
        original_rows(&world).await;
        for message in original_messages() {
            let reference = message.key();
            let topic = reference.topic.clone().filter(|_| topic_is_known);
            let reference = MessageKey { topic, ..reference };
            let others = MessageKey { chid: state_machine::Chid([0; 16]), ..reference.clone() };
            assert_eq!(world.delete(others).await, 0);
            assert_eq!(world.delete(reference.clone()).await, 1, "{reference:?}");
            assert_eq!(world.delete(reference).await, 0);
        }
        assert_eq!(world.message_rows(november()).await, []);
    }
}

#[tokio::test]
async fn messages_of_autopush_and_ours_are_deleted_together() {
    let world = World::with_original_rows().await;
    for message in [message(1), topical(2)] {
        world.store(november(), message).await;
    }
    let of_topic = MessageKey { topic: None, ..topical(2).key() };
    let [_replaced, first, second] = original_messages().map(|message| message.key());
    let all = vec![first.clone(), message(1).key(), of_topic, second, first];
    let months = vec![november(), december()];
    assert_eq!(world.store.delete_messages(AGENT, months, all).await, Ok(4));
    assert_eq!(world.message_rows(november()).await, []);
}

#[tokio::test]
async fn a_row_of_autopush_that_was_replaced_is_not_deleted() {
    let world = World::open().await;
    let keys = original_rows(&world).await;
    for key in &keys {
        world.put_row(key, attributes("11111111111141118111111111111111")).await;
    }
    for message in original_messages() {
        assert_eq!(world.delete(message.key()).await, 0);
    }
    assert_eq!(world.message_rows(november()).await.len(), 3);
}

#[tokio::test]
async fn a_row_without_an_updateid_has_one_id_and_is_deleted_by_it() {
    let world = World::open().await;
    world.put_row(&format!("{CHANNEL}:x"), [("ttl", n(60)), ("timestamp", n(SECONDS))]).await;
    let waiting = world.waiting(november()).await;
    assert_eq!(waiting, world.waiting(november()).await);
    let [message] = &waiting[..] else { panic!("{waiting:?}") };
    assert_eq!((message.chid, &message.payload), (CHANNEL, &None));
    assert_eq!(world.delete(message.key()).await, 1);
    assert_eq!(world.waiting(november()).await, []);
}

#[tokio::test]
async fn a_message_of_autopush_expires() {
    let world = World::open().await;
    let timestamp = |seconds| [("ttl", n(60)), ("timestamp", n(seconds))];
    world.put_row(&format!("{CHANNEL}:expired"), timestamp(SECONDS - 60)).await;
    world.put_row(&format!("{CHANNEL}:lives"), timestamp(SECONDS - 59)).await;
    world.put_row(&format!("{CHANNEL}:for ever"), []).await;
    world.put_row(&format!("{CHANNEL}:by expiry"), [("expiry", n(SECONDS))]).await;
    let accepted: Vec<Time> =
        world.waiting(november()).await.iter().map(|message| message.accepted_at).collect();
    assert_eq!(accepted, [Time(0), Time((SECONDS - 59) * 1000)]);
    let (timestamp, expiry) = (("timestamp", n(SECONDS)), ("expiry", n(SECONDS + 60)));
    world.put_row(&format!("{CHANNEL}:lives up to its expiry"), [timestamp, expiry]).await;
    let waiting = world.waiting(november()).await;
    let lives = |message: &Message| message.expires_at() == Time((SECONDS + 60) * 1000);
    assert!(waiting.iter().any(lives), "{waiting:?}");
}

/// Random ids have no order in time.
#[tokio::test]
async fn our_message_replaces_the_originals_of_its_topic() {
    let world = World::open().await;
    for update_id in RANDOM {
        world.put_row(&format!("01:{CHANNEL}:a-topic"), attributes(update_id)).await;
        world.store(november(), topical(1)).await;
        assert_eq!(world.waiting(november()).await, [topical(1)]);
    }
}

#[tokio::test]
async fn rows_of_autopush_are_moved_unchanged() {
    let world = World::with_original_rows().await;
    let rows = world.message_rows(november()).await;
    world.store.move_messages(AGENT, november(), december()).await.unwrap();
    assert_eq!(world.message_rows(december()).await, rows);
    assert_eq!(world.message_rows(november()).await, []);
}

#[tokio::test]
async fn a_moved_message_of_autopush_does_not_replace_one_of_its_topic() {
    let world = World::open().await;
    world.put_row(&format!("01:{CHANNEL}:a-topic"), attributes(RANDOM[1])).await;
    world.store(december(), topical(1)).await;
    world.store.move_messages(AGENT, november(), december()).await.unwrap();
    assert_eq!(world.waiting(december()).await, [topical(1)]);
    assert_eq!(world.message_rows(november()).await, []);
}

#[tokio::test]
async fn an_unreadable_row_blocks_no_other_row_and_is_counted() {
    let world = World::open().await;
    world.put_row("nonsense", []).await;
    world.put_row(&format!("{CHANNEL}:x"), [("data", s("%%"))]).await;
    world.store(november(), message(1)).await;
    assert_eq!(world.waiting(november()).await, [message(1)]);
    assert_eq!(world.store.engine().unreadable(), 2);
    world.store.move_messages(AGENT, november(), december()).await.unwrap();
    assert_eq!(world.waiting(december()).await, [message(1)]);
    assert_eq!(world.message_rows(november()).await.len(), 1, "its owner is unknown");
}

/// With it would go every subscription of the agent. A connection that reads its channels relies on them.
#[tokio::test]
async fn the_channels_of_autopush_do_not_expire_once_they_are_read_or_added() {
    let channels = BTreeSet::from([CHANNEL]);
    for is_read in [true, false] {
        let world = World::open().await;
        let chids = ("chids", AttributeValue::Ss(vec![CHANNEL.to_string()]));
        world.put_row(" ", [chids, ("expiry", n(SECONDS + 60)), ("other", s("stays"))]).await;
        if is_read {
            let read = world.store.channels(AGENT, november()).await;
            assert_eq!(read, Ok(Some(channels.clone())));
        } else {
            world.store.add_channels(AGENT, november(), BTreeSet::new()).await.unwrap();
        }
        let rows = world.tables.rows("message_2026_11").await;
        assert_eq!(rows.len(), 1, "read: {is_read}");
        assert!(!rows[0].contains_key("expiry") && rows[0].contains_key("chids"));
        assert_eq!(rows[0]["other"], s("stays"));
    }
}

/// Registers a known agent as one that would be created in December. Its record is of November.
async fn register_later(world: &World) {
    let december = Registration { create_in: Some(december()), ..registration(101) };
    let registered = world.store.register_user(december).await.unwrap();
    let RegisterResult::Registered(record, _) = registered else { panic!("{registered:?}") };
    assert_eq!(record.curmonth, november());
}

#[tokio::test]
async fn unknown_attributes_of_a_record_are_preserved() {
    let world = World::open().await;
    let router_data = headers(&[("token", "x")]);
    for curmonth in ["message_2026_11", "2026_11"] {
        let record = [
            ("router_type", s("webpush")),
            ("node_id", s("https://10.0.0.1:8081")),
            ("connected_at", n(100)),
            ("last_connect", n(2_026_111_400_007)),
            ("curmonth", s(curmonth)),
            ("router_data", router_data.clone()),
        ];
        world.put_record(&record).await;
        let read = world.store.record(AGENT).await.unwrap().unwrap();
        assert_eq!(read.node, Some(NodeId::new("https://10.0.0.1:8081")));
        assert_eq!((read.curmonth, read.oldmonth), (november(), None));
        register_later(&world).await;
        let rows = world.tables.rows("router").await;
        assert_eq!(rows[0]["router_data"], router_data);
        assert_eq!(rows[0]["curmonth"], s(curmonth));
    }
}

/// The last versions of the Python autopush named the attribute `current_month`.
#[tokio::test]
async fn a_record_with_a_current_month_keeps_its_month_and_gets_a_curmonth() {
    let world = World::open().await;
    world.put_record(&[("current_month", s("message_2026_11"))]).await;
    assert_eq!(world.store.record(AGENT).await.unwrap().unwrap().curmonth, november());
    let counted = world.store.records_by_month(None).await.unwrap();
    assert_eq!((counted.curmonth, counted.unreadable), ([(november(), 1)].into(), 0));
    register_later(&world).await;
    assert_eq!(world.tables.rows("router").await[0]["curmonth"], s("message_2026_11"));
}

#[tokio::test]
async fn a_bridged_record_of_autopush_is_dropped_only_with_its_application() {
    let world = World::open().await;
    let map = |fields: &[(&str, AttributeValue)]| AttributeValue::M(item(fields));
    let creds = ("creds", map(&[("senderID", s("old"))]));
    for (app, data) in [
        ("old", map(&[("token", s("t")), creds.clone()])),
        ("new", map(&[("token", s("t")), ("app_id", s("new")), creds])),
    ] {
        let curmonth = ("curmonth", s("message_2026_11"));
        world.put_record(&[("router_type", s("fcm")), curmonth, ("router_data", data)]).await;
        for other in ["old", "new", "third"].iter().filter(|other| **other != app) {
            assert_eq!(world.store.drop_bridged(AGENT, fcm(other)).await, Ok(false), "{app}");
        }
        assert_eq!(world.store.drop_bridged(AGENT, fcm(app)).await, Ok(true));
    }
}

fn fcm(app: &str) -> BridgeRecipient {
    BridgeRecipient { bridge: BridgeName::Fcm, app: app.into(), token: "t".into(), aps: None }
}

#[tokio::test]
async fn a_record_that_cannot_be_read_is_not_written() {
    let world = World::open().await;
    let full = world.tables.name("message_2026_11");
    for (curmonth, oldmonth, says) in [
        (
            Some(s("others_2026_11")),
            None,
            "the curmonth `others_2026_11`, which is no message table",
        ),
        (Some(s("2026_11")), Some(s("others_2026_10")), "the oldmonth `others_2026_10`"),
        (Some(s(&full)), Some(s("")), "the oldmonth ``"),
        (Some(n(7)), None, "the curmonth ``"),
        (None, None, "a record has no `curmonth`"),
    ] {
        let months = [("curmonth", curmonth), ("oldmonth", oldmonth)];
        let months = months.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let binding = [("node_id", s("http://10.0.0.1:8081")), ("connected_at", n(100))];
        world.put_record(&binding.into_iter().chain(months).collect::<Vec<_>>()).await;
        let before = world.tables.rows("router").await;
        let known = Registration { create_in: None, ..registration(101) };
        let read = world.store.record(AGENT).await.unwrap_err().to_string();
        let told = world.store.register_user(known).await.unwrap_err().to_string();
        assert!(told.contains(says) && told == read, "{told}\n{read}");
        assert_eq!(world.tables.rows("router").await, before);
    }
}

/// It is between two months, which is as much as a condition can see.
#[tokio::test]
async fn a_record_of_an_invalid_month_is_rejected() {
    let world = World::open().await;
    world.put_record(&[("curmonth", s("message_2026_13"))]).await;
    let told = world.store.register_user(registration(101)).await.unwrap_err().to_string();
    assert!(told.contains("the curmonth `message_2026_13`"), "{told}");
}

#[tokio::test]
async fn a_record_that_is_not_replaced_refuses_an_agent_whatever_its_month_is() {
    let world = World::open().await;
    let curmonth = || ("curmonth", s("others_2026_11"));
    world.put_record(&[curmonth(), ("connected_at", n(101))]).await;
    let registered = world.store.register_user(registration(100)).await;
    assert_eq!(registered, Ok(RegisterResult::Superseded(Time(101))));
    let data = AttributeValue::M(item(&[("token", s("t")), ("app_id", s("a"))]));
    world.put_record(&[("router_type", s("fcm")), curmonth(), ("router_data", data)]).await;
    let registered = world.store.register_user(registration(100)).await;
    assert_eq!(registered, Ok(RegisterResult::UnknownAgent));
}

#[tokio::test]
async fn our_rows_have_the_attributes_of_autopush_and_a_few_more() {
    let world = World::open().await;
    let odd = Message { ttl: Span(1), urgency: Urgency::High, ..topical(2) };
    world.store(november(), message(1)).await;
    world.store(november(), odd.clone()).await;
    assert_eq!(world.waiting(november()).await, [message(1), odd]);
    let rows = world.message_rows(november()).await;
    let row = |sort_key: String, id: MessageId, text: &str, more: &[(&str, AttributeValue)]| {
        let common = [
            ("uaid", s(&AGENT.to_string())),
            ("chidmessageid", s(&sort_key)),
            ("updateid", s(&id.to_string())),
            ("timestamp", n(SECONDS)),
            ("accepted_at", n(NOW.0)),
            ("data", AttributeValue::B(text.as_bytes().into())),
            ("headers", headers(&[("encoding", "aes128gcm")])),
        ];
        item(common.iter().chain(more))
    };
    let short =
        [("ttl", n(1)), ("ttl_ms", n(1)), ("expiry", n(SECONDS + 1)), ("urgency", s("high"))];
    let topical_row = row(format!("01:{CHANNEL}:a-topic"), id(2, true), "message 2", &short);
    let minute = [("ttl", n(60)), ("expiry", n(SECONDS + 60))];
    let plain_key = format!("02:{}:{CHANNEL}", id(1, false));
    assert_eq!(rows, [topical_row, row(plain_key, id(1, false), "message 1", &minute)]);
}

/// What is found by `last_connect` is a user agent.
#[tokio::test]
async fn a_health_check_leaves_one_item_that_is_no_user_agent() {
    let world = World::open().await;
    world.store.check().await.unwrap();
    world.store.check().await.unwrap();
    let expected = item(&[("uaid", s("health")), ("checks", n(2))]);
    assert_eq!(world.tables.rows("router").await, [expected]);
}

#[tokio::test]
async fn the_marks_of_keys_are_one_item_that_is_no_user_agent() {
    let world = World::open().await;
    let mark = "crypto:00".to_owned();
    let marks = BTreeSet::from([mark.clone()]);
    assert_eq!(world.store.put_key_fingerprints(BTreeSet::new(), marks).await, Ok(true));
    let marks = AttributeValue::Ss(vec![mark]);
    let expected = item(&[("uaid", s("keys")), ("marks", marks)]);
    assert_eq!(world.tables.rows("router").await, [expected]);
}

/// DynamoDB takes items of 400 KB.
#[tokio::test]
async fn a_message_too_large_for_an_item_is_refused_with_a_reason() {
    let world = World::open().await;
    let large = Message { payload: Some(payload(vec![0; 500_000])), ..message(1) };
    let stored = world.store.store_message(AGENT, november(), large).await;
    let Err(StoreError::Failed(told)) = stored else { panic!("{stored:?}") };
    let table = world.tables.name("message_2026_11");
    let refusal = format!("PutItem on table {table}: ValidationException");
    assert!(told.starts_with(&refusal) && told.contains("size"), "{told}");
    assert_eq!(world.waiting(november()).await, []);
}
