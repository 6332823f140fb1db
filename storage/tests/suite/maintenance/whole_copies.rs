//! The rows of all tables, read from one store and written to another.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use state_machine::{
    AckCode, Encoding, Message, Payload, Receipt, ReceiptRequest, Span, Time, Urgency,
};
use storage::copied_rows::CopiedRow;
use storage::feeds::{FeedKey, FeedMark, FeedName, FeedSyncId, FeedValue, Forgotten};
use storage::maintenance::Table;
use storage::{ExpectedReceipt, Notification, PageLimit};

use crate::maintenance::engines;
use crate::maintenance::world::{
    DAY, DECEMBER, HOUR, World, agent, bridged, chid, chids, message, month, topical,
};
use crate::names::each_page;
use crate::store_calls::StoreCalls;

const MONTHS: [&str; 2] = ["2026_11", "2026_12"];

fn tables() -> Vec<Table> {
    let months = MONTHS.map(|name| Table::Messages(month(name)));
    months.into_iter().chain(Table::OF_NO_MONTH).collect()
}

async fn rows(world: &World, table: Table) -> Vec<CopiedRow> {
    let mut rows = Vec::new();
    each_page(async |after| {
        let page = world.read_rows(table, after).await.unwrap();
        assert_eq!(page.seen(), page.rows.len() as u64);
        rows.extend(page.rows);
        page.next
    })
    .await;
    assert_eq!(world.count_rows(table).await, Ok(rows.len() as u64), "{table:?}");
    rows
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
    world.register_bridged(bridged(agent(4), DECEMBER)).await.unwrap();
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
    fill_receipts(world).await;
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

/// A receipt that is published, one that waits, and two that are expected.
async fn fill_receipts(world: &World) {
    for number in 1..=4 {
        let wanting = wanting(number);
        let expected = ExpectedReceipt::of(&wanting).unwrap();
        assert_eq!(world.expect_receipt(expected, 100).await, Ok(true));
        world.put(agent(1), "2026_12", &wanting).await;
    }
    settle(world, 1).await;
    world.publish(subscription(), None, 10).await.unwrap();
    settle(world, 2).await;
}

fn subscription() -> FeedName {
    FeedName::receipts(DECEMBER + DAY, 7)
}

/// A message with the wish for a receipt.
fn wanting(number: u32) -> Message {
    let key = FeedKey::parse(&format!("/m/{number}")).unwrap();
    let receipt = Some(Box::new(ReceiptRequest { subscription: subscription(), key }));
    let message = message(100 + number);
    Message { id: message.id.with_receipt(true), receipt, ..message }
}

async fn settle(world: &World, number: u32) {
    let acked = vec![(wanting(number).key(), AckCode::Delivered)];
    let settled = world.settle_messages(agent(1), vec![month("2026_12")], acked).await.unwrap();
    assert_eq!((settled.deleted, settled.subscriptions), (1, vec![subscription()]));
}

/// A message of before the copy is acked, and another one expires.
async fn copied_receipts_go_on(copy: &World) {
    settle(copy, 3).await;
    let expired = copy.expire_receipts(DECEMBER + HOUR).await.unwrap();
    assert_eq!((expired.receipts, expired.ended), (1, 0));
    copy.publish(subscription(), None, 10).await.unwrap();
    let all = PageLimit { rows: 100, bytes: 10_000 };
    let page = copy.fetch_feed(subscription(), FeedSyncId::NONE, all).await.unwrap().unwrap();
    let receipts = page.updates.into_iter().map(|update| {
        let receipt = Receipt::parse(&update.value.unwrap()).unwrap();
        (update.feed_sync_id.0, update.key.to_string(), receipt)
    });
    let delivered = Receipt::Delivered(AckCode::Delivered);
    let of = |id, receipt| (id, format!("/m/{id}"), receipt);
    let expected = [of(1, delivered), of(2, delivered), of(3, delivered), of(4, Receipt::Expired)];
    assert_eq!(receipts.collect::<Vec<_>>(), expected);
    let end = copy.expire_receipts(DECEMBER + DAY + HOUR).await.unwrap();
    assert_eq!(end.receipts, 0);
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
        for (table, count) in tables().into_iter().zip([0, 9, 4, 2, 3, 18]) {
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
        copied_receipts_go_on(&copy).await;
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
    let channels = (0..COUNT).map(|number| CopiedRow::Channels(agent(number), chids([number])));
    let messages = (0..COUNT).map(|number| {
        CopiedRow::Message(
            agent(number),
            Message { accepted_at: Time(1), ..message(u32::from(number)) },
        )
    });
    let written: HashSet<_> = channels.chain(messages).collect();
    let table = Table::Messages(month("2026_12"));
    world.write_rows(table, Arc::new(written.iter().cloned().collect())).await.unwrap();
    let versions: HashSet<_> = (0..COUNT)
        .map(|number| Notification { chid: chid(number), version: 7, data: None })
        .map(|version| CopiedRow::Version(agent(1), version))
        .collect();
    let all = Arc::new(versions.iter().cloned().collect());
    world.write_rows(Table::Notifications, all).await.unwrap();
    for (table, written) in [(table, written), (Table::Notifications, versions)] {
        let read = rows(&world, table).await;
        assert_eq!(read.len(), written.len());
        assert!(read.into_iter().collect::<HashSet<_>>() == written);
    }
}
