//! The rows of all tables, read from one store and written to another.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use state_machine::{
    BridgeName, BridgeRecipient, Encoding, LastConnect, Message, Payload, Span, Time, Urgency,
};
use storage::feeds::{FeedKey, FeedMark, FeedName, FeedSyncId, FeedValue, Forgotten};
use storage::maintenance::Table;
use storage::rows::Row;
use storage::{BridgedRegistration, Notification, PageLimit};

use crate::maintenance::engines;
use crate::maintenance::world::{DECEMBER, World, agent, chid, chids, message, month, topical};

const MONTHS: [&str; 2] = ["2026_11", "2026_12"];

fn tables() -> Vec<Table> {
    let months = MONTHS.map(|name| Table::Messages(month(name)));
    let others = [Table::Notifications, Table::Sequences, Table::Feeds, Table::Router];
    months.into_iter().chain(others).collect()
}

async fn rows(world: &World, table: Table) -> Vec<Row> {
    let (mut rows, mut after) = (Vec::new(), None);
    loop {
        let page = world.read_rows(table, after).await.unwrap();
        assert_eq!(page.unreadable, 0);
        rows.extend(page.rows);
        after = page.next;
        if after.is_none() {
            return rows;
        }
    }
}

async fn empty(world: World) -> World {
    world.ensure_feeds().await.unwrap();
    world.ensure_notifications().await.unwrap();
    world.with_months(&MONTHS).await
}

/// Something of every kind in each table.
async fn fill(world: &World) {
    for number in 1..=3 {
        world.connect(agent(number), DECEMBER).await;
    }
    world.begin_move(agent(2), DECEMBER, "2026_11").await;
    world.mark_dropped(agent(3), None).await.unwrap();
    let recipient = BridgeRecipient {
        bridge: BridgeName::Fcm,
        app: "app".into(),
        token: "token".into(),
        aps: None,
    };
    let bridged = BridgedRegistration {
        uaid: agent(4),
        recipient,
        connected_at: DECEMBER,
        last_connect: LastConnect::of(DECEMBER, agent(4), 1),
        create_in: Some(month("2026_12")),
    };
    world.register_bridged(bridged).await.unwrap();
    world.add_channels(agent(1), month("2026_12"), chids([1, 2])).await.unwrap();
    world.add_channels(agent(2), month("2026_12"), chids([])).await.unwrap();
    let encoding = Encoding::AesGcm { encryption: "salt=a".into(), crypto_key: "dh=b".into() };
    let old = Message {
        ttl: Span(1_234_567),
        urgency: Urgency::High,
        payload: Some(Payload { data: Bytes::from_static(&[0, 0xff]), encoding }),
        ..message(3)
    };
    for message in [message(1), topical(2), old, Message { payload: None, ..message(4) }] {
        world.put(agent(1), "2026_12", &message).await;
    }
    let offered = [message(1).key()];
    world.record_offers(agent(1), month("2026_12"), offered.into()).await.unwrap();
    // A message whose channel was unregistered stays until the agent reads it.
    let other = Message { chid: chid(2), ..message(5) };
    world.put(agent(1), "2026_12", &other).await;
    world.remove_channel(agent(1), vec![month("2026_12")], chid(2)).await.unwrap();
    for (channel, data) in [(1, None), (2, Some("a text".to_owned()))] {
        let version = Notification { chid: chid(channel), version: u64::MAX - 1, data };
        world.save_notification(agent(1), version).await.unwrap();
    }
    fill_feeds(world).await;
}

async fn fill_feeds(world: &World) {
    for feed in [FeedName::parse("prices").unwrap(), FeedName::access()] {
        let [published, deleted, waiting] =
            ["a published", "b deleted", "c waiting"].map(|key| FeedKey::parse(key).unwrap());
        let write = async |key: &FeedKey| {
            let value = FeedValue::parse("value").unwrap();
            world.write_key(feed.clone(), key.clone(), value, 10).await.unwrap();
        };
        forgotten(world, &feed).await;
        write(&published).await;
        write(&deleted).await;
        world.publish(feed.clone(), None, 10).await.unwrap();
        world.delete_key(feed.clone(), deleted).await.unwrap();
        world.publish(feed.clone(), None, 10).await.unwrap();
        write(&waiting).await;
    }
}

/// Numbers 1 and 2, of a key that was deleted and is forgotten.
async fn forgotten(world: &World, feed: &FeedName) {
    let (key, value) = (FeedKey::parse("d").unwrap(), FeedValue::parse("value").unwrap());
    world.write_key(feed.clone(), key.clone(), value, 10).await.unwrap();
    world.publish(feed.clone(), None, 10).await.unwrap();
    world.delete_key(feed.clone(), key).await.unwrap();
    world.publish(feed.clone(), None, 10).await.unwrap();
    let forgotten = world.forget(feed.clone(), FeedSyncId(2), 10).await.unwrap();
    assert_eq!(forgotten, Some(Forgotten { count: 1, is_all: true }));
    world.mark_feed(feed.clone(), FeedMark { number: FeedSyncId(2), at: Time(5) }).await.unwrap();
}

pub(crate) async fn rows_of_every_kind_are_the_same_in_every_engine(world: World) {
    let world = empty(world).await;
    fill(&world).await;
    for copy in [engines::embedded(), engines::dynamodb()] {
        let copy = empty(copy).await;
        for (table, count) in tables().into_iter().zip([0, 7, 2, 2, 12, 4]) {
            let there = rows(&world, table).await;
            assert_eq!(there.len(), count, "{table:?}");
            // The second write is that of a copy that was interrupted.
            for _ in 0..2 {
                copy.write_rows(table, Arc::new(there.clone())).await.unwrap();
                let copied = rows(&copy, table).await;
                assert_eq!(copied.len(), count, "{table:?}");
                assert!(
                    copied.into_iter().collect::<HashSet<_>>() == there.iter().cloned().collect()
                );
            }
        }
        let mut record = world.record(agent(1)).await.unwrap().unwrap();
        record.node = None;
        assert_eq!(copy.record(agent(1)).await, Ok(Some(record)), "no agent is connected to it");
        for number in 2..=4 {
            let mut record = world.record(agent(number)).await.unwrap();
            record.iter_mut().for_each(|record| record.node = None);
            assert_eq!(copy.record(agent(number)).await, Ok(record));
        }
        let feed = FeedName::parse("prices").unwrap();
        let all = PageLimit { rows: 100, bytes: 10_000 };
        let page = world.fetch_feed(feed.clone(), FeedSyncId::NONE, all).await;
        assert_eq!(copy.fetch_feed(feed, FeedSyncId::NONE, all).await, page);
        assert_eq!(page.unwrap().unwrap().horizon, FeedSyncId(2));
        assert_eq!(copy.feeds(None, 10).await, world.feeds(None, 10).await);
        copied_feed_goes_on(&copy).await;
    }
}

/// The key that waited gets the next number.
async fn copied_feed_goes_on(copy: &World) {
    let feed = FeedName::parse("prices").unwrap();
    let published = copy.publish(feed.clone(), None, 10).await.unwrap().unwrap();
    assert_eq!((published.count, published.head.0), (1, 6));
    let key = FeedKey::parse("a published").unwrap();
    let again = copy.republish_key(feed.clone(), key).await.unwrap();
    assert!(again.is_some(), "the version of the key is that of its row");
    assert_eq!(copy.publish(feed, None, 10).await.unwrap().unwrap().head.0, 7);
}

pub(crate) async fn many_rows_are_read_in_pages_and_each_once(world: World) {
    let world = empty(world).await;
    const COUNT: u16 = 1234;
    let channels = (0..COUNT).map(|number| Row::Channels(agent(number), chids([number])));
    let messages = (0..COUNT).map(|number| {
        Row::Message(agent(number), Message { accepted_at: Time(1), ..message(u32::from(number)) })
    });
    let written: HashSet<_> = channels.chain(messages).collect();
    let table = Table::Messages(month("2026_12"));
    world.write_rows(table, Arc::new(written.iter().cloned().collect())).await.unwrap();
    let versions: HashSet<_> = (0..COUNT)
        .map(|number| Notification { chid: chid(number), version: 7, data: None })
        .map(|version| Row::Version(agent(1), version))
        .collect();
    let all = Arc::new(versions.iter().cloned().collect());
    world.write_rows(Table::Notifications, all).await.unwrap();
    for (table, written) in [(table, written), (Table::Notifications, versions)] {
        let read = rows(&world, table).await;
        assert_eq!(read.len(), written.len());
        assert!(read.into_iter().collect::<HashSet<_>>() == written);
    }
}
