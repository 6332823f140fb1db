//! Feeds in memory, by the table that engines are compared with. A test can have the store fail, or
//! keep its answers back.

use std::collections::{BTreeMap, BTreeSet};
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard};

use state_machine::feed::{
    FeedKey, FeedMark, FeedName, FeedPage, FeedSyncId, FeedValue, Forgotten, Publication,
    PublishResult, Table, Update, Version, WriteResult,
};
use state_machine::store::PageLimit;
use storage::feeds::FeedState;
use storage::{FeedTables, StoreError, StoreFuture};
use tokio::sync::watch;

/// A store of feeds. Clones are one store.
#[derive(Clone)]
pub(crate) struct FeedStore(Arc<Inner>);

/// What is asked of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Call {
    Write,
    Publish,
    Fetch,
    Forget,
    List,
}

struct Inner {
    state: Mutex<State>,
    /// Which answers are kept back.
    kept_back: watch::Sender<BTreeSet<Call>>,
}

#[derive(Default)]
struct State {
    feeds: BTreeMap<FeedName, Table>,
    calls: BTreeMap<Call, usize>,
    fails: BTreeSet<Call>,
}

impl FeedStore {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Inner { state: Mutex::default(), kept_back: watch::Sender::default() }))
    }

    /// How often this was asked.
    pub(crate) fn calls(&self, call: Call) -> usize {
        self.state().calls.get(&call).copied().unwrap_or(0)
    }

    /// From now on these fail, and no others.
    pub(crate) fn fails(&self, calls: impl IntoIterator<Item = Call>) {
        self.state().fails = calls.into_iter().collect();
    }

    /// From now on the answers to these are kept back, though they are done, and no others.
    pub(crate) fn keeps_back(&self, calls: impl IntoIterator<Item = Call>) {
        self.0.kept_back.send_replace(calls.into_iter().collect());
    }

    /// Writes as a node does that is killed before it publishes.
    pub(crate) fn writes_and_dies(&self, feed: &FeedName, key: &str, value: &str) {
        let (key, value) = (FeedKey::parse(key).unwrap(), FeedValue::parse(value).unwrap());
        let mut state = self.state();
        let written = state.feeds.entry(feed.clone()).or_default().write(key, value, u64::MAX);
        assert!(matches!(written, WriteResult::Done(_)));
    }

    /// A feed as it is.
    pub(crate) fn table(&self, feed: &FeedName) -> Table {
        self.state().feeds.get(feed).cloned().unwrap_or_default()
    }

    /// How many keys of all feeds wait for a number.
    pub(crate) fn pending(&self) -> usize {
        self.state().feeds.values().map(|table| table.pending(None, usize::MAX).len()).sum()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }

    /// What is asked is done at once, whenever it is answered.
    fn answer<T: Send + 'static>(
        &self,
        call: Call,
        order: impl FnOnce(&mut Feeds) -> T,
    ) -> StoreFuture<T> {
        let mut state = self.state();
        *state.calls.entry(call).or_default() += 1;
        if state.fails.contains(&call) {
            return Box::pin(ready(Err(StoreError::Busy)));
        }
        let answer = order(&mut state.feeds);
        let mut kept_back = self.0.kept_back.subscribe();
        Box::pin(async move {
            let given = kept_back.wait_for(|kept_back| !kept_back.contains(&call)).await;
            given.map_err(|_| StoreError::Closed)?;
            Ok(answer)
        })
    }
}

type Feeds = BTreeMap<FeedName, Table>;

impl FeedTables for FeedStore {
    fn ensure_feeds(&self) -> StoreFuture<()> {
        Box::pin(ready(Ok(())))
    }

    fn write_key(
        &self,
        feed: FeedName,
        key: FeedKey,
        value: FeedValue,
        keys_max: u64,
    ) -> StoreFuture<WriteResult> {
        self.answer(Call::Write, |feeds| feeds.entry(feed).or_default().write(key, value, keys_max))
    }

    fn republish_key(&self, feed: FeedName, key: FeedKey) -> StoreFuture<Option<Version>> {
        self.answer(Call::Write, |feeds| feeds.get_mut(&feed)?.republish(&key))
    }

    fn delete_key(&self, feed: FeedName, key: FeedKey) -> StoreFuture<Option<Version>> {
        self.answer(Call::Write, |feeds| feeds.get_mut(&feed)?.delete(&key))
    }

    fn publish(
        &self,
        feed: FeedName,
        after: Option<FeedKey>,
        limit: usize,
    ) -> StoreFuture<Option<PublishResult>> {
        self.answer(Call::Publish, |feeds| {
            Some(publish(feeds.get_mut(&feed)?, after.as_ref(), limit))
        })
    }

    fn fetch_feed(
        &self,
        feed: FeedName,
        after: FeedSyncId,
        limit: PageLimit,
    ) -> StoreFuture<Option<FeedPage>> {
        self.answer(Call::Fetch, |feeds| Some(fetch(feeds.get(&feed)?, after, limit)))
    }

    fn forget(
        &self,
        feed: FeedName,
        through: FeedSyncId,
        limit: usize,
    ) -> StoreFuture<Option<Forgotten>> {
        self.answer(Call::Forget, |feeds| Some(feeds.get_mut(&feed)?.forget(through, limit)))
    }

    fn mark_feed(&self, feed: FeedName, mark: FeedMark) -> StoreFuture<()> {
        self.answer(Call::Forget, |feeds| feeds.entry(feed).or_default().mark(mark))
    }

    fn feeds(&self, after: Option<FeedName>, limit: usize) -> StoreFuture<Vec<FeedState>> {
        self.answer(Call::List, |feeds| {
            let listed = feeds.iter().filter(|(name, _)| name.receipts_end().is_none());
            let behind = listed.filter(|(name, _)| Some(*name) > after.as_ref());
            let state = |(name, table): (&FeedName, &Table)| FeedState {
                name: name.clone(),
                sequence: table.sequence(),
            };
            behind.map(state).take(limit).collect()
        })
    }
}

fn publish(table: &mut Table, after: Option<&FeedKey>, limit: usize) -> PublishResult {
    let mut pending = table.pending(after, limit + 1);
    let is_all = pending.len() <= limit;
    pending.truncate(limit);
    match Publication::of(table.sequence(), pending) {
        None => PublishResult { count: 0, head: table.sequence().value, next: None },
        Some(publication) => {
            table.commit(&publication).unwrap();
            publication.outcome(is_all)
        }
    }
}

fn fetch(table: &Table, after: FeedSyncId, limit: PageLimit) -> FeedPage {
    let head = table.sequence().value;
    let horizon = table.sequence().horizon;
    let begin = if after.is_none() { horizon } else { after };
    let mut updates: Vec<Update> = table.sequenced(begin, head);
    let is_all = updates.len() <= limit.rows;
    updates.truncate(limit.rows);
    let last = updates.last().map(|update| update.feed_sync_id);
    let cursor = last.filter(|_| !is_all).unwrap_or(head).max(after);
    FeedPage { updates, cursor, head, horizon }
}
