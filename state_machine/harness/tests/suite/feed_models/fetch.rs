//! A fetch from a store without snapshots: it reads the sequence first, then one number after the
//! other.

use state_machine::feed::{FeedPage, FeedSyncId, Sequence, Update};
use state_machine::store::PageLimit;

use super::mutation::Mutation;
use super::store::Store;

/// A consumer's order, and the steps that the store has executed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Fetch {
    limit: PageLimit,
    head: Option<FeedSyncId>,
    /// The horizon when the head was read.
    horizon: FeedSyncId,
    /// The last number that was read.
    at: FeedSyncId,
    /// Whether that number was present.
    is_there: bool,
    updates: Vec<Update>,
}

impl Fetch {
    pub(crate) fn new(after: FeedSyncId, limit: PageLimit) -> Self {
        Self {
            limit,
            head: None,
            horizon: FeedSyncId::NONE,
            at: after,
            is_there: true,
            updates: Vec::new(),
        }
    }

    /// The store executes one step. Returns its answer at the end; none in the answer if there is
    /// no such feed.
    pub(crate) fn goes_on(
        &mut self,
        store: &Store,
        mutation: Option<Mutation>,
    ) -> Option<Option<FeedPage>> {
        if store.table.sequence() == Sequence::default() {
            return Some(None);
        }
        let is_at_end = !self.is_there && store.greatest() <= self.at;
        let is_done = match (mutation, self.head) {
            (Some(Mutation::HeadReadAfterRows), None) if !is_at_end => self.looks(store),
            (Some(Mutation::HeadReadAfterRows), None) => self.takes_head_for_cursor(store),
            (_, None) => self.reads_head(store, mutation),
            (Some(Mutation::ReaderWithoutHead), Some(head)) if is_at_end => {
                self.takes_greatest_for_cursor(head)
            }
            (Some(Mutation::ReaderWithoutHead), Some(_)) => self.looks(store),
            (_, Some(head)) => self.looks(store) || head <= self.at,
        };
        is_done.then(|| Some(self.page(store, mutation)))
    }

    /// Whether the head was read, and numbers up to it are still to be read.
    pub(crate) fn is_half_way(&self) -> bool {
        self.head.is_some()
    }

    /// Returns whether there is nothing to read after the cursor.
    fn reads_head(&mut self, store: &Store, mutation: Option<Mutation>) -> bool {
        let head = store.head(mutation);
        self.head = Some(head);
        self.horizon = store.horizon(mutation);
        if self.at.is_none() {
            self.at = self.horizon;
        }
        head <= self.at
    }

    /// Reads the next number. Returns whether the page is full.
    fn looks(&mut self, store: &Store) -> bool {
        self.at = self.at.plus(1);
        let update = store.sequenced(self.at);
        self.is_there = update.is_some();
        self.updates.extend(update);
        self.limit.rows <= self.updates.len()
    }

    fn takes_head_for_cursor(&mut self, store: &Store) -> bool {
        self.at = store.table.sequence().value;
        true
    }

    fn takes_greatest_for_cursor(&mut self, head: FeedSyncId) -> bool {
        self.at = self.updates.last().map_or(head, |last| last.feed_sync_id);
        true
    }

    fn page(&self, store: &Store, mutation: Option<Mutation>) -> FeedPage {
        let head = self.head.unwrap_or(store.table.sequence().value);
        let mut updates = self.updates.clone();
        if mutation == Some(Mutation::PageByKey) {
            updates.sort_by(|one, other| one.key.cmp(&other.key));
        }
        let horizon = match mutation {
            Some(Mutation::HorizonReadFirst) => self.horizon,
            _ => store.horizon(mutation),
        };
        FeedPage { updates, cursor: self.at, head, horizon }
    }
}
