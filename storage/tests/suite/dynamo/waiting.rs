//! The item that counts what waits.

use aws_sdk_dynamodb::types::AttributeValue;
use state_machine::{Chid, Message, MessageKey};
use storage::{FullScope, PageLimit, Store, Stored, WaitingBound, WaitingLimits, WhenFull};
use storage_dynamodb::{Dynamo, DynamoOptions};

use crate::dynamo::script::{Script, Step, error, ok, refused};
use crate::dynamo::things::*;
use crate::store_calls::StoreCalls;

const MESSAGES_MAX: u64 = 3;

/// A store with bounds, and its tables as they are.
struct World {
    store: Dynamo,
    tables: Tables,
}

impl World {
    async fn open(when_full: WhenFull) -> Self {
        let channel = WaitingBound { messages_max: MESSAGES_MAX, bytes_max: 0 };
        let mut tables = Tables::new();
        tables.options.waiting = WaitingLimits { channel, when_full, ..WaitingLimits::NONE };
        let store = tables.open();
        for month in [november(), december()] {
            store.ensure_month(month).await.unwrap();
            store.add_channels(AGENT, month, [CHANNEL].into()).await.unwrap();
        }
        Self { store, tables }
    }

    async fn store(&self, number: u32) -> Stored {
        let message = Message { chid: CHANNEL, ..message(number) };
        self.store.store_message(AGENT, november(), message).await.unwrap()
    }

    async fn put(&self, sort_key: &str, more: &[(&str, AttributeValue)]) {
        let keys = [("uaid", s(&AGENT.to_string())), ("chidmessageid", s(sort_key))];
        self.tables.put("message_2026_11", keys.iter().chain(more)).await;
    }

    async fn rows(&self) -> Vec<Item> {
        self.tables.rows("message_2026_11").await
    }

    async fn counted(&self) -> Option<String> {
        let rows = self.rows().await;
        let counts = rows.iter().find(|row| row["chidmessageid"] == s(" waiting"))?;
        Some(counts["messages"].as_n().unwrap().clone())
    }
}

#[tokio::test]
async fn rows_of_other_software_count_and_never_give_way() {
    let world = World::open(WhenFull::Replace).await;
    for number in 0..MESSAGES_MAX {
        let more = [("updateid", s("9d7f2c1e5b8a4e0f9c3d6a7b8c9d0e1f")), ("ttl", n(60))];
        let time = [("timestamp", n(NOW.0 / 1000))];
        world.put(&format!("02:{number}:{CHANNEL}"), &[&more[..], &time].concat()).await;
    }
    let before = world.rows().await;
    assert_eq!(world.store(1).await, Stored::Full(FullScope::Channel));
    let mut after = world.rows().await;
    after.retain(|row| row["chidmessageid"] != s(" waiting"));
    assert_eq!(after, before);
}

#[tokio::test]
async fn a_count_that_is_too_high_is_corrected_when_it_says_full() {
    let world = World::open(WhenFull::Refuse).await;
    assert_eq!(world.store(1).await, Stored::Done);
    let of_channel = format!("m:{CHANNEL}");
    world.put(" waiting", &[("messages", n(50)), ("bytes", n(0)), (&of_channel, n(50))]).await;
    assert_eq!(world.store(2).await, Stored::Done);
    assert_eq!(world.counted().await.as_deref(), Some("2"));
}

/// Deletes, replacements and fetches leave the count right, and a move removes it.
#[tokio::test]
async fn the_count_follows_the_rows() {
    let world = World::open(WhenFull::Refuse).await;
    for number in 1..=3 {
        assert_eq!(world.store(number).await, Stored::Done);
    }
    assert_eq!(world.store(3).await, Stored::Done, "again");
    assert_eq!(world.counted().await.as_deref(), Some("3"));
    let deleted: Vec<MessageKey> =
        (1..=2).map(|number| Message { chid: CHANNEL, ..message(number) }.key()).collect();
    let months = vec![november(), december()];
    assert_eq!(world.store.delete_messages(AGENT, months, deleted).await, Ok(2));
    assert_eq!(world.counted().await.as_deref(), Some("1"));
    let limit = PageLimit { rows: 10, bytes: 1000 };
    let page = world.store.fetch_messages(AGENT, november(), None, limit, NOW).await.unwrap();
    assert_eq!(page.messages.len(), 1);
    world.store.move_messages(AGENT, november(), december()).await.unwrap();
    assert_eq!(world.counted().await, None);
    assert_eq!(world.store.engine().unreadable(), 0, "the count is no message");
}

#[tokio::test]
async fn the_count_forgets_channels_without_messages() {
    let world = World::open(WhenFull::Refuse).await;
    let channels: Vec<_> = (0..25_u8).map(|number| Chid([number; 16])).collect();
    let all = channels.iter().copied().collect();
    world.store.add_channels(AGENT, november(), all).await.unwrap();
    assert_eq!(world.store(1).await, Stored::Done);
    for (number, chid) in (2..).zip(channels) {
        let message = Message { chid, ..message(number) };
        let key = message.key();
        let stored = world.store.store_message(AGENT, november(), message).await;
        assert_eq!(stored, Ok(Stored::Done));
        let deleted = world.store.delete_messages(AGENT, vec![november()], vec![key]).await;
        assert_eq!(deleted, Ok(1));
    }
    let rows = world.rows().await;
    let counts = rows.iter().find(|row| row["chidmessageid"] == s(" waiting")).unwrap();
    let channels = counts.keys().filter(|name| name.starts_with("m:")).count();
    assert_eq!(channels, 1 + 5, "that with a message, and the last that were emptied");
    assert_eq!(world.counted().await.as_deref(), Some("1"));
}

/// Two changes may leave the totals as they were.
#[tokio::test]
async fn a_count_of_the_rows_gives_way_to_any_change_meanwhile() {
    let counts = r#","Item": {"messages": {"N": "3"}, "bytes": {"N": "0"}, "version": {"N": "7"}}"#;
    let full = || Step::Reply(400, error("ConditionalCheckFailedException", counts));
    let channels =
        format!(r#"{{"Item": {{"uaid": {{"S": "a"}}, "chids": {{"SS": ["{CHANNEL}"]}}}}}}"#);
    let changed = refused("ConditionalCheckFailedException");
    let count = [full(), ok("{}"), ok(r#"{"Items": []}"#), changed];
    let stored = [ok("{}"), ok("{}")];
    let script = Script::new([ok(&channels)].into_iter().chain(count).chain(stored));
    let channel = WaitingBound { messages_max: MESSAGES_MAX, bytes_max: 0 };
    let waiting = WaitingLimits { channel, ..WaitingLimits::NONE };
    let store = script.open_with(&DynamoOptions { waiting, ..options() }).unwrap();
    let message = Message { chid: CHANNEL, ..message(1) };
    assert_eq!(store.store_message(AGENT, november(), message).await, Ok(Stored::Done));
    let asked = ["GetItem", "UpdateItem", "GetItem", "Query", "PutItem", "UpdateItem", "PutItem"];
    assert_eq!(script.asked(), asked);
    let count = &script.bodies()[4];
    assert!(count.contains(r#""ConditionExpression":"version = :version""#), "{count}");
    assert!(count.contains(r#"":version":{"N":"7"}"#), "{count}");
}
