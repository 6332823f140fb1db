//! Random histories of a feed: the engine does, call by call, what [`Table`] does as a value.
//!
//! Where the contract leaves an engine a choice, how much a call does at once, the table does as
//! much.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use state_machine::feed::{
    FeedKey, FeedName, FeedPage, FeedSyncId, Publication, PublishResult, Table, Update,
};
use storage::{FeedTables, PageLimit};
use tokio::runtime::Handle;
use tokio::task::block_in_place;

use crate::conformance::feed_world::*;
use crate::conformance::world::World;

const HISTORIES: u32 = 24;
const CALLS_MAX: usize = 60;
/// Few enough that histories meet it.
const KEYS_ALLOWED: u64 = 4;

/// One call of a feed.
#[derive(Debug, Clone)]
enum Call {
    Write(FeedKey, String),
    Republish(FeedKey),
    Delete(FeedKey),
    Publish(Option<FeedKey>, usize),
    Fetch(u64, PageLimit),
    /// The consumer of the history fetches where it is.
    Follow(PageLimit),
}

pub(crate) async fn an_engine_matches_the_reference_table(world: World) {
    let store = world.shared_feeds();
    block_in_place(|| {
        let config = Config { cases: HISTORIES, failure_persistence: None, ..Config::default() };
        let compared = TestRunner::new(config).run(&vec(call(), 1..CALLS_MAX), |calls| {
            Handle::current().block_on(compare(store.clone(), calls));
            Ok(())
        });
        compared.unwrap();
    });
    assert!(!world.feeds(None, 1).await.unwrap().is_empty(), "something was compared");
}

async fn compare(store: Arc<dyn FeedTables>, calls: Vec<Call>) {
    let mut history = History::new(store);
    for call in calls {
        history.call(call).await;
    }
    history.end().await;
}

/// A feed of its own, and the same as a value.
struct History {
    store: Arc<dyn FeedTables>,
    feed: FeedName,
    table: Table,
    consumer: Follower,
}

impl History {
    fn new(store: Arc<dyn FeedTables>) -> Self {
        static FEEDS: AtomicU32 = AtomicU32::new(0);
        let feed = feed(&format!("history-{}", FEEDS.fetch_add(1, Ordering::Relaxed)));
        Self { store, feed, table: Table::default(), consumer: Follower::default() }
    }

    async fn call(&mut self, call: Call) {
        let store = self.store.clone();
        let feed = self.feed.clone();
        match call {
            Call::Write(key, text) => {
                let expected = self.table.write(key.clone(), value(&text), KEYS_ALLOWED);
                let written = store.write_key(feed, key, value(&text), KEYS_ALLOWED).await;
                assert_eq!(written, Ok(expected));
            }
            Call::Republish(key) => {
                let expected = self.table.republish(&key);
                assert_eq!(store.republish_key(feed, key).await, Ok(expected));
            }
            Call::Delete(key) => {
                let expected = self.table.delete(&key);
                assert_eq!(store.delete_key(feed, key).await, Ok(expected));
            }
            Call::Publish(after, limit) => {
                let published = store.publish(feed, after.clone(), limit).await.unwrap();
                self.published(after.as_ref(), limit, published);
            }
            Call::Fetch(after, limit) => {
                let page = store.fetch_feed(feed, FeedSyncId(after), limit).await.unwrap();
                self.fetched(FeedSyncId(after), limit, page.as_ref());
            }
            Call::Follow(limit) if self.is_there() => {
                self.consumer.poll(&*store, feed.as_str(), limit).await;
            }
            Call::Follow(_) => {}
        }
    }

    /// A feed is there from its first write on.
    fn is_there(&self) -> bool {
        self.table.sequence().keys > 0
    }

    /// The table publishes as many as the engine did.
    fn published(
        &mut self,
        after: Option<&FeedKey>,
        limit: usize,
        published: Option<PublishResult>,
    ) {
        assert_eq!(published.is_some(), self.is_there());
        let Some(PublishResult { count, head, next }) = published else { return };
        let waiting = self.table.pending(after, limit.max(1));
        assert!(count <= waiting.len(), "{count} of {waiting:?}");
        let numbered = waiting[..count].to_vec();
        if let Some(publication) = Publication::of(self.table.sequence(), numbered) {
            self.table.commit(&publication).unwrap();
        }
        assert_eq!(head, self.table.sequence().value);
        assert!(next.is_none() || next.as_ref() > after);
        let left = self.table.pending(after, usize::MAX);
        let first_left = left.first().map(|pending| &pending.key);
        assert!(first_left.is_none() || next.is_some(), "{left:?} wait");
        assert!(first_left.is_none_or(|left| Some(left) > next.as_ref()), "{left:?} was passed by");
    }

    /// A page has every update up to its cursor.
    fn fetched(&self, after: FeedSyncId, limit: PageLimit, page: Option<&FeedPage>) {
        assert_eq!(page.is_some(), self.is_there());
        let Some(FeedPage { updates, cursor, head, .. }) = page else { return };
        assert_eq!(*head, self.table.sequence().value);
        assert_eq!(updates, &self.table.sequenced(after, *cursor));
        assert!(updates.len() <= limit.rows.max(1));
        if after < *head {
            assert!(after < *cursor && cursor <= head, "{cursor} is between {after} and {head}");
        } else {
            assert_eq!(*cursor, after);
        }
    }

    /// Publishes and follows what is left: the engine, the table and the consumer agree.
    async fn end(mut self) {
        if !self.is_there() {
            return;
        }
        let name = self.feed.clone();
        assert_eq!(sequence(&*self.store, name.as_str()).await, self.table.sequence());
        publish_all(&*self.store, name.as_str()).await;
        while let Some(publication) =
            Publication::of(self.table.sequence(), self.table.pending(None, usize::MAX))
        {
            self.table.commit(&publication).unwrap();
        }
        let numbers = |updates: Vec<Update>| updates.iter().map(seen).collect::<Vec<_>>();
        let all = numbers(self.table.sequenced(FeedSyncId::NONE, self.table.sequence().value));
        assert_eq!(updates(&*self.store, name.as_str(), 0).await, all);
        self.consumer.catch_up(&*self.store, name.as_str()).await;
        let known =
            self.table.rows().map(|(key, row)| (key.clone(), (row.version, row.value.clone())));
        assert_eq!(self.consumer.known, known.collect());
    }
}

fn call() -> impl Strategy<Value = Call> {
    let text = prop_oneof![Just(""), Just("x"), Just("yy"), Just("zzz")].prop_map(str::to_owned);
    let behind = || proptest::option::weighted(0.3, name());
    prop_oneof![
        6 => (name(), text).prop_map(|(key, text)| Call::Write(key, text)),
        2 => name().prop_map(Call::Republish),
        2 => name().prop_map(Call::Delete),
        4 => (behind(), 0..5_usize).prop_map(|(after, limit)| Call::Publish(after, limit)),
        3 => (0..20_u64, limit()).prop_map(|(after, limit)| Call::Fetch(after, limit)),
        3 => limit().prop_map(Call::Follow),
    ]
}

fn name() -> impl Strategy<Value = FeedKey> {
    prop_oneof![Just("a"), Just("a:"), Just("a/b"), Just("ab"), Just("p:a"), Just("b")]
        .prop_map(key)
}

fn limit() -> impl Strategy<Value = PageLimit> {
    (0..4_usize, 0..5_usize).prop_map(|(rows, bytes)| PageLimit { rows, bytes })
}
