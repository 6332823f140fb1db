//! A snapshot beside writes.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;
use state_machine::Month;
use storage::maintenance::SNAPSHOT_DIR;
use storage::upgrade::UpgradeWatch;
use storage::{Store, StoreAdmin};
use storage_sqlite::Embedded;
use storage_sqlite::check_restored;

use crate::embedded::{CHID, agent, message, month, open, opened};
use crate::store_calls::StoreCalls;

fn rows(dir: &Path, month: Month) -> u64 {
    let conn = Connection::open(dir.join(format!("messages_{month}.db"))).unwrap();
    let count = conn.query_row("SELECT count(*) FROM messages", [], |row| row.get::<_, i64>(0));
    count.unwrap().unsigned_abs()
}

async fn store_in_both(store: &Embedded, number: u32) {
    for month in [month(), month().next()] {
        store.store_message(agent(1), month, message(number)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_has_all_files_as_they_were_at_one_moment() {
    let home = tempfile::tempdir().unwrap();
    let snapshot = home.path().join(SNAPSHOT_DIR);
    let store = Arc::new(open(home.path()));
    for month in [month(), month().next()] {
        store.ensure_month(month).await.unwrap();
        store.add_channels(agent(1), month, [CHID].into()).await.unwrap();
    }
    store_in_both(&store, 1).await;
    fs::create_dir(&snapshot).unwrap();
    let (writes, runtime) = (store.clone(), tokio::runtime::Handle::current());
    let mut steps = 1;
    let on_step = Box::new(move |done, of| {
        assert!(done <= of);
        steps += 1;
        runtime.block_on(store_in_both(&writes, steps));
        true
    });
    store.snapshot(on_step).await.unwrap();
    check_restored(&snapshot, UpgradeWatch::NONE).unwrap();
    assert_eq!((rows(&snapshot, month()), rows(&snapshot, month().next())), (1, 1));
    assert!(rows(home.path(), month()) > 1, "writes went on");
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_snapshot_ends_when_its_caller_stops() {
    let (home, store) = opened();
    fs::create_dir(home.path().join(SNAPSHOT_DIR)).unwrap();
    let stopped = store.snapshot(Box::new(|_done, _of| false)).await.unwrap_err().to_string();
    assert!(stopped.contains("interrupted"), "{stopped}");
    store.close().await.unwrap();
}
