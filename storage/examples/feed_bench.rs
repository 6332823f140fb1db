//! What a feed costs in the embedded store: CPU µs of the whole process for one key, and keys a
//! second.
//!
//! `cargo run --release -p storage --example feed_bench [TASKS] [VALUE_BYTES] [DIR]`
//!
//! TASKS writers (16) each wait for their answer before they write again. 1,000 keys, values of
//! VALUE_BYTES (100).

mod measure;

use std::path::Path;
use std::sync::Arc;

use state_machine::feed::{FeedKey, FeedName, FeedSyncId, FeedValue, WriteResult};
use storage::{FeedTables, PageLimit, Store};
use storage_sqlite::{Embedded, EmbeddedOptions};
use tokio::task::JoinSet;

const KEYS: u32 = 1000;
const KEYS_MAX: u64 = 100_000;
const CHANGES: u32 = 100_000;
/// One after the other, each waits for the disk: fewer of them.
const SINGLE: u32 = 5000;
const PAGE: PageLimit = PageLimit { rows: 100, bytes: 1024 * 1024 };

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut args = std::env::args().skip(1);
    let tasks = args.next().map_or(16, |text| text.parse().expect("TASKS is a number"));
    let bytes = args.next().map_or(100, |text| text.parse().expect("VALUE_BYTES is a number"));
    let temporary = tempfile::tempdir().expect("a temporary directory can be made");
    let dir = args.next().map_or(temporary.path().to_owned(), Into::into);
    println!("{tasks} tasks, {bytes} bytes a value, {KEYS} keys, in {}", dir.display());
    run(&dir, tasks, bytes).await;
}

async fn run(dir: &Path, tasks: u32, bytes: usize) {
    let store = Embedded::open(dir, &EmbeddedOptions::new(4096)).expect("the directory is usable");
    let store = Arc::new(store);
    let bench = Bench { store: store.clone(), tasks, value: value(bytes) };
    bench.store.ensure_feeds().await.expect("made");
    bench.measure("durable write", CHANGES, write).await;
    publish_all(&bench).await;
    bench.measure("write and publish one, writers at once", CHANGES, write_and_publish_one).await;
    publish_all(&bench).await;
    let alone = Bench { tasks: 1, ..bench.clone() };
    alone
        .measure("write and publish one, one after the other", SINGLE, write_and_publish_one)
        .await;
    alone.measure("publish in batches of 100 what waits", CHANGES, write_many_and_publish).await;
    alone.measure("fetch pages of 100", CHANGES, fetch).await;
    store.close().await.expect("closed");
}

#[derive(Clone)]
struct Bench {
    store: Arc<dyn FeedTables>,
    tasks: u32,
    value: FeedValue,
}

impl Bench {
    async fn measure<F: Future<Output = ()> + Send + 'static>(
        &self,
        name: &str,
        count: u32,
        operation: fn(Self, u32) -> F,
    ) {
        measure::measure(self, self.tasks, name, count, operation).await;
    }
}

async fn write(bench: Bench, number: u32) {
    let written = bench.store.write_key(feed(), key(number), bench.value, KEYS_MAX).await;
    assert!(matches!(written, Ok(WriteResult::Done(_))), "{written:?}");
}

async fn write_and_publish_one(bench: Bench, number: u32) {
    write(bench.clone(), number).await;
    bench.store.publish(feed(), None, 1).await.expect("published").expect("a feed");
}

/// A thousand writes at once, then ten publications of a hundred.
async fn write_many_and_publish(bench: Bench, number: u32) {
    if !number.is_multiple_of(KEYS) {
        return;
    }
    let mut writes = JoinSet::new();
    for key in 0..KEYS {
        writes.spawn(write(bench.clone(), key));
    }
    writes.join_all().await;
    publish_all(&bench).await;
}

async fn publish_all(bench: &Bench) {
    let mut after = None;
    loop {
        let published = bench.store.publish(feed(), after, 100).await.expect("published");
        after = published.expect("a feed").next;
        if after.is_none() {
            return;
        }
    }
}

/// One update in a hundred fetches a page.
async fn fetch(bench: Bench, number: u32) {
    if !number.is_multiple_of(PAGE.rows as u32) {
        return;
    }
    let head = bench.store.fetch_feed(feed(), FeedSyncId::NONE, PAGE).await.expect("read");
    let head = head.expect("a feed").head;
    let behind = u64::from(number % KEYS) + PAGE.rows as u64;
    let after = FeedSyncId(head.0 - behind);
    let page = bench.store.fetch_feed(feed(), after, PAGE).await.expect("read").expect("a feed");
    assert_eq!(page.updates.len(), PAGE.rows);
}

fn feed() -> FeedName {
    FeedName::parse("bench").expect("a name")
}

fn key(number: u32) -> FeedKey {
    FeedKey::parse(&format!("key-{}", number % KEYS)).expect("a key")
}

fn value(bytes: usize) -> FeedValue {
    FeedValue::parse(&"x".repeat(bytes)).expect("a value")
}
