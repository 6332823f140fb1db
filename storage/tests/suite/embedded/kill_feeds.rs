//! kill -9 while keys of a feed are written and published: what was answered is there, and no
//! number was given twice.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use state_machine::feed::{FeedKey, FeedName, FeedSyncId, FeedValue, Update, WriteResult};
use storage::{FeedTables, PageLimit, Store};
use storage_sqlite::Embedded;
use tokio::task::JoinSet;

use crate::embedded::{CHILD_DIR, kill_child, open};
use crate::names::until_done;

/// Each has a key of its own, whose values are the numbers 1, 2, 3 and so on.
const WRITERS: u32 = 6;
const PUBLISHERS: u32 = 2;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_number_is_assigned_twice_and_no_write_is_lost_by_kill_nine() {
    if let Some(dir) = std::env::var_os(CHILD_DIR) {
        return write_and_publish_until_killed(Path::new(&dir)).await;
    }
    let home = tempfile::tempdir().unwrap();
    let mut heard = Heard::default();
    for answers in [200, 1000, 3000] {
        let enough = heard.lines + answers;
        let is_enough = |line: &str| {
            heard.note(line);
            heard.lines >= enough
        };
        kill_child(home.path(), is_enough, Duration::ZERO).await;
        assert!(heard.lines >= enough, "the child runs until it is killed");
        let store = open(home.path());
        heard.verify(&store).await;
        store.close().await.unwrap();
    }
}

/// The output of the child: what it did and saw.
#[derive(Default)]
struct Heard {
    lines: usize,
    /// The last value of each key that was answered.
    written: BTreeMap<u32, u64>,
    /// The greatest number in the output.
    head: u64,
    /// Which key and version had which number, by all that was ever seen.
    numbered: BTreeMap<u64, (String, u64)>,
}

impl Heard {
    fn note(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |word: &str| word.parse::<u64>().unwrap();
        match words[..] {
            ["#", "written", writer, value, "."] => {
                self.written.insert(writer.parse().unwrap(), number(value));
            }
            ["#", "head", head, "."] => self.head = self.head.max(number(head)),
            ["#", "saw", at, key, version, "."] => self.saw(number(at), key, number(version)),
            _ => return,
        }
        self.lines += 1;
    }

    fn saw(&mut self, at: u64, key: &str, version: u64) {
        let is = (key.to_owned(), version);
        let was = self.numbered.entry(at).or_insert_with(|| is.clone());
        assert_eq!(*was, is, "{at} was given twice");
        self.head = self.head.max(at);
    }

    async fn verify(&mut self, store: &Embedded) {
        let before = everything(store).await;
        let head = store.feeds(None, 1).await.unwrap()[0].sequence.value.0;
        assert!(head >= self.head, "{head} was {} before", self.head);
        before.iter().for_each(|update| self.note(&line_of(update)));
        until_done(async || store.publish(feed(), None, 100).await.unwrap().unwrap().count > 0)
            .await;
        let held = everything(store).await;
        let given_now = held.iter().filter(|update| !before.contains(update));
        for update in given_now {
            assert!(update.feed_sync_id.0 > head, "numbers go on growing: {update:?}");
        }
        held.iter().for_each(|update| self.note(&line_of(update)));
        let values: BTreeMap<_, _> = held.iter().map(value_of).collect();
        for (writer, value) in &self.written {
            assert!(values.get(writer) >= Some(value), "{value} of {writer} is lost: {values:?}");
        }
    }
}

fn feed() -> FeedName {
    FeedName::broadcasts()
}

fn key(writer: u32) -> FeedKey {
    FeedKey::parse(&writer.to_string()).unwrap()
}

fn line_of(update: &Update) -> String {
    format!("# saw {} {} {} .", update.feed_sync_id, update.key, update.version)
}

fn value_of(update: &Update) -> (u32, u64) {
    let value = update.value.as_ref().expect("nobody deletes").as_str();
    (update.key.as_str().parse().unwrap(), value.parse().unwrap())
}

async fn everything(store: &Embedded) -> Vec<Update> {
    let all = PageLimit { rows: usize::MAX, bytes: usize::MAX };
    store.fetch_feed(feed(), FeedSyncId::NONE, all).await.unwrap().unwrap().updates
}

/// The child: writers, publishers and a reader print what was answered.
async fn write_and_publish_until_killed(dir: &Path) {
    let store = Arc::new(open(dir));
    write(&store, WRITERS, 0).await;
    let held: BTreeMap<_, _> = everything(&store).await.iter().map(value_of).collect();
    let mut tasks = JoinSet::new();
    for writer in 0..WRITERS {
        let first = held.get(&writer).map_or(1, |last| last + 1);
        tasks.spawn(write_from(store.clone(), writer, first));
    }
    for _publisher in 0..PUBLISHERS {
        tasks.spawn(publish(store.clone()));
    }
    tasks.spawn(read(store));
    tasks.join_all().await;
}

async fn write_from(store: Arc<Embedded>, writer: u32, first: u64) {
    for value in first.. {
        write(&store, writer, value).await;
        println!("# written {writer} {value} .");
    }
}

async fn write(store: &Embedded, writer: u32, value: u64) {
    let value = FeedValue::parse(&value.to_string()).unwrap();
    let written = store.write_key(feed(), key(writer), value, 100).await;
    assert!(matches!(written, Ok(WriteResult::Done(_))), "{written:?}");
}

async fn publish(store: Arc<Embedded>) {
    loop {
        let published = store.publish(feed(), None, 4).await.unwrap().unwrap();
        if published.count > 0 {
            println!("# head {} .", published.head);
        }
    }
}

async fn read(store: Arc<Embedded>) {
    let mut after = FeedSyncId::NONE;
    loop {
        let limit = PageLimit { rows: 10, bytes: 1000 };
        let page = store.fetch_feed(feed(), after, limit).await.unwrap().unwrap();
        page.updates.iter().for_each(|update| println!("{}", line_of(update)));
        after = page.cursor;
        tokio::task::yield_now().await;
    }
}
