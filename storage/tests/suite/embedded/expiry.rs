//! Expired messages of agents that stay away, and the counts of those that wait.

use std::path::Path;

use rusqlite::Connection;
use state_machine::{Chid, Message, Month, Span, Time};
use storage::{Store, StoreAdmin, Stored, WaitingBound, WaitingLimits};
use storage_sqlite::{Embedded, EmbeddedOptions};

use crate::embedded::{CHID, NOW, agent, furnish, furnished, message, month, waiting};
use crate::store_calls::StoreCalls;

const LATER: Time = Time(NOW.0 + 5000);

fn expired(number: u32) -> Message {
    Message { ttl: Span::from_secs(5), ..message(number) }
}

/// A store in which four messages of a user agent may wait.
fn open_for_four(dir: &Path) -> Embedded {
    let user = WaitingBound { messages_max: 4, bytes_max: 0 };
    let waiting = WaitingLimits { user, ..WaitingLimits::NONE };
    Embedded::open(dir, &EmbeddedOptions { waiting, ..EmbeddedOptions::new(4096) }).unwrap()
}

fn number(dir: &Path, query: &str) -> i64 {
    let file = Connection::open(dir.join("messages_2026_11.db")).unwrap();
    file.query_row(query, [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn a_sweep_deletes_expired_messages_of_all_agents_in_all_months() {
    let (home, store) = furnished().await;
    let old: Month = "2026_10".parse().unwrap();
    store.ensure_month(old).await.unwrap();
    for (uaid, month) in [(agent(1), old), (agent(2), old), (agent(2), month())] {
        store.add_channels(uaid, month, [CHID].into()).await.unwrap();
        for number in 2..=450 {
            drop(store.store_message(uaid, month, expired(number)));
        }
        store.store_message(uaid, month, message(1)).await.unwrap();
    }
    assert_eq!(store.delete_expired(LATER - Span(1)).await, Ok(0));
    assert_eq!(store.delete_expired(LATER).await, Ok(3 * 449));
    assert_eq!(store.delete_expired(LATER).await, Ok(0));
    assert_eq!(waiting(&store, agent(2), NOW).await, [message(1)]);
    store.close().await.unwrap();
    assert_eq!(number(home.path(), "SELECT count(*) FROM messages"), 2);
}

#[tokio::test]
async fn the_space_of_expired_messages_is_used_again() {
    let (home, store) = furnished().await;
    let pages = || number(home.path(), "PRAGMA page_count");
    let mut sizes = Vec::new();
    for round in 0..3 {
        for at in 0..500 {
            let alike = Message { payload: message(1).payload, ..expired(2 + round * 500 + at) };
            drop(store.store_message(agent(1), month(), alike));
        }
        store.check().await.unwrap();
        sizes.push(pages());
        assert_eq!(store.delete_expired(LATER).await, Ok(500));
    }
    assert!(sizes[0] > 20, "{sizes:?}");
    assert!(sizes[2] <= sizes[0] + sizes[0] / 10, "the file does not grow: {sizes:?}");
}

#[tokio::test]
async fn messages_of_an_unregistered_channel_make_room() {
    let home = tempfile::tempdir().unwrap();
    let store = open_for_four(home.path());
    furnish(&store).await;
    let other = Chid([0x77; 16]);
    store.add_channels(agent(1), month(), [other].into()).await.unwrap();
    let of_other = |number| Message { chid: other, ..message(number) };
    for number in 2..=4 {
        let stored = store.store_message(agent(1), month(), of_other(number)).await;
        assert_eq!(stored, Ok(Stored::Done));
    }
    let full = store.store_message(agent(1), month(), message(5)).await;
    assert!(matches!(full, Ok(Stored::Full(_))), "{full:?}");
    store.remove_channel(agent(1), vec![month()], other).await.unwrap();
    let stored = store.store_message(agent(1), month(), message(5)).await;
    assert_eq!(stored, Ok(Stored::Done));
    assert_eq!(waiting(&store, agent(1), NOW).await, [message(1), message(5)]);
}

/// A file of the version before has neither the index nor the counts.
#[tokio::test]
async fn a_file_of_an_older_version_gets_counts_of_what_waits() {
    let (home, store) = furnished().await;
    for number in 2..=3 {
        store.store_message(agent(1), month(), message(number)).await.unwrap();
    }
    store.close().await.unwrap();
    Connection::open(home.path().join("messages_2026_11.db"))
        .unwrap()
        .execute_batch(
            "DROP TRIGGER waiting_inserted; DROP TRIGGER waiting_replaced;
            DROP TRIGGER waiting_deleted; DROP TABLE waiting; DROP INDEX messages_by_expiry;
            ALTER TABLE messages DROP COLUMN receipt;
            PRAGMA user_version = 2",
        )
        .unwrap();
    let store = open_for_four(home.path());
    let of_sizes = "SELECT sum(length(data)) FROM messages";
    let counted = "SELECT bytes FROM waiting WHERE chid = x''";
    assert_eq!(number(home.path(), counted), number(home.path(), of_sizes));
    let stored = store.store_message(agent(1), month(), message(4)).await;
    assert_eq!(stored, Ok(Stored::Done));
    let refused = store.store_message(agent(1), month(), message(5)).await;
    assert!(matches!(refused, Ok(Stored::Full(_))), "{refused:?}");
}
