//! The time table of docs/sources.md#feed-sequences-note, t=0 to t=6: the last record is published
//! again after a consumer has seen it. Each engine passes, and a publisher that asks for
//! `MAX(feed_sync_id) + 1` fails.

use rusqlite::{Connection, OptionalExtension, params};
use state_machine::feed::{FeedSyncId, Version};

use crate::conformance::feed_world::*;
use crate::conformance::world::World;

pub(crate) async fn a_consumer_of_the_time_table_sees_the_last_version(world: World) {
    let mut consumer = Follower::default();
    let at = |version, value: &str| Some((Version(version), Some(value.to_owned())));
    assert_eq!(write(&*world, FEED, "fred", "bob").await, 1, "t=1");
    assert_eq!(publish(&*world, FEED, 1).await.head, FeedSyncId(1), "t=2");
    consumer.poll(&*world, FEED, PAGE).await;
    assert_eq!((consumer.cursor.0, consumer.of("fred")), (1, at(2, "bob")), "t=3");
    assert_eq!(write(&*world, FEED, "fred", "jim").await, 3, "t=4");
    assert_eq!(publish(&*world, FEED, 1).await.head, FeedSyncId(2), "t=5");
    consumer.poll(&*world, FEED, PAGE).await;
    assert_eq!((consumer.cursor.0, consumer.of("fred")), (2, at(4, "jim")), "t=6");
}

/// Shows that the test above can fail.
#[test]
fn a_publisher_of_max_plus_one_loses_the_last_version_of_the_time_table() {
    let naive = Naive::new();
    let mut cursor = 0;
    naive.write("fred", "bob");
    assert_eq!(naive.publish_one(), Some(1), "t=2");
    assert_eq!(naive.consume(&mut cursor), [saw(1, "fred", 2, "bob")], "t=3");
    naive.write("fred", "jim");
    assert_eq!(naive.publish_one(), Some(1), "t=5: the number is given a second time");
    assert_eq!(naive.consume(&mut cursor), [], "t=6: nothing to do!");
    assert_eq!(naive.everything(), [saw(1, "fred", 4, "jim")], "which no consumer receives");
}

/// A feed that has no sequence.
struct Naive(Connection);

impl Naive {
    fn new() -> Self {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(
            "CREATE TABLE kv (k TEXT PRIMARY KEY, v TEXT, version INTEGER, feed_sync_id INTEGER)",
        )
        .unwrap();
        Self(conn)
    }

    fn write(&self, key: &str, value: &str) {
        let write = "
            INSERT INTO kv VALUES (?1, ?2, 1, NULL) ON CONFLICT (k)
            DO UPDATE SET v = excluded.v, version = version + 1, feed_sync_id = NULL";
        self.0.execute(write, params![key, value]).unwrap();
    }

    /// The number that was given, if a key waited.
    fn publish_one(&self) -> Option<u64> {
        let publish = "
            UPDATE kv SET version = version + 1,
                feed_sync_id = (SELECT coalesce(MAX(feed_sync_id), 0) + 1 FROM kv)
            WHERE k = (SELECT k FROM kv WHERE feed_sync_id IS NULL LIMIT 1)
            RETURNING feed_sync_id";
        let given = self.0.query_row(publish, [], |row| row.get::<_, i64>(0)).optional();
        given.unwrap().map(i64::unsigned_abs)
    }

    /// What has a number above the cursor, which moves to the last of them.
    fn consume(&self, cursor: &mut u64) -> Vec<Seen> {
        let updates = self.above(*cursor);
        *cursor = updates.last().map_or(*cursor, |(number, ..)| *number);
        updates
    }

    fn everything(&self) -> Vec<Seen> {
        self.above(0)
    }

    fn above(&self, cursor: u64) -> Vec<Seen> {
        let fetch = "
            SELECT feed_sync_id, k, version, v FROM kv
            WHERE feed_sync_id > ?1 ORDER BY feed_sync_id";
        let mut statement = self.0.prepare(fetch).unwrap();
        let number = |stored: i64| stored.unsigned_abs();
        let rows = statement.query_map(params![cursor as i64], |row| {
            Ok((number(row.get(0)?), row.get(1)?, number(row.get(2)?), row.get(3)?))
        });
        rows.unwrap().map(Result::unwrap).collect()
    }
}
