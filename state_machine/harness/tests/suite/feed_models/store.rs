//! The feed's rows, and the bugs that a store may have.

use state_machine::feed::{FeedKey, FeedName, FeedSyncId};
use storage::rules::feed_rows::SequenceChange;
use storage_reference::{Answer, Commit, Feed, Request, Tables};

use super::mutation::Mutation;

/// The state on disk.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Store {
    pub(crate) tables: Tables,
    /// The horizon that a seeded bug has not raised yet.
    unraised: Option<Request>,
}

impl Default for Store {
    fn default() -> Self {
        let feeds = [(FeedName::broadcasts(), Feed::default())].into();
        Self { tables: Tables { feeds, ..Tables::default() }, unraised: None }
    }
}

impl Store {
    /// The one feed of a model.
    pub(crate) fn feed(&self) -> &Feed {
        self.tables.feeds.values().next().expect("a model has one feed")
    }

    fn feed_mut(&mut self) -> &mut Feed {
        self.tables.feeds.values_mut().next().expect("a model has one feed")
    }

    /// The oldest entry, if it is a tombstone that readers see.
    pub(crate) fn oldest_tombstone(&self) -> Option<FeedSyncId> {
        let feed = self.feed();
        let is_seen_in_part = self.tables.is_seen_in_part;
        let head = if is_seen_in_part { feed.settled } else { feed.sequence().value };
        let is_seen = |number: &FeedSyncId| *number <= head && !feed.hidden.contains(number);
        let numbered = feed.keys.values().filter_map(|row| {
            let number = row.feed_sync_id.filter(is_seen)?;
            Some((number, row.value.is_none()))
        });
        let (number, is_deleted) = numbered.filter(|(number, _)| !number.is_none()).min()?;
        is_deleted.then_some(number)
    }

    /// Whether a partly visible transaction contains this key. It cannot be changed until the
    /// transaction is whole.
    pub(crate) fn is_held(&self, key: &FeedKey) -> bool {
        let number = self.feed().keys.get(key).and_then(|row| row.feed_sync_id);
        number.is_some_and(|number| self.feed().hidden.contains(&number))
    }

    /// Makes one more number of a partly visible publication visible.
    pub(crate) fn is_seen(&mut self, number: FeedSyncId) {
        self.feed_mut().hidden.remove(&number);
    }

    /// Executes a request. None while it must wait for another transaction.
    pub(crate) fn execute(
        &mut self,
        request: &Request,
        mutation: Option<Mutation>,
    ) -> Option<Answer> {
        let Some(mutation) = mutation else { return self.tables.execute(request) };
        let mut request = request.clone();
        match (mutation, &mut request) {
            (Mutation::SettledUnseen, Request::Settle(..)) => {
                let hidden = std::mem::take(&mut self.feed_mut().hidden);
                let answer = self.tables.execute(&request);
                self.feed_mut().hidden = hidden;
                return answer;
            }
            (Mutation::SettledWithoutCondition, Request::Settle(_, sequence)) => {
                let settled = sequence.value;
                let answer = self.tables.execute(&request)?;
                self.feed_mut().settled = settled;
                return Some(answer);
            }
            (Mutation::RemovedBeforeHorizon, Request::RaiseHorizon { raised, .. }) => {
                let is_old = |number: FeedSyncId| number <= raised.horizon;
                self.feed_mut().keys.retain(|_, row| !row.feed_sync_id.is_some_and(is_old));
                self.unraised = Some(request);
                return Some(Answer::Is(true));
            }
            (_, Request::Commit(commit)) => self.mutate(mutation, commit),
            _ => {}
        }
        let mut answer = self.tables.execute(&request)?;
        match (mutation, &mut answer) {
            (Mutation::MaxPlusOne, Answer::Sequence(Some(row))) => {
                row.sequence.value = self.feed().greatest();
            }
            (Mutation::ValueForSettled, Answer::Sequence(Some(row))) => {
                row.settled = row.sequence.value;
            }
            (Mutation::NothingBehind, Answer::Pending(page)) => page.is_all = true,
            _ => {}
        }
        Some(answer)
    }

    fn mutate(&mut self, mutation: Mutation, commit: &mut Commit) {
        let present = self.feed().sequence().version;
        let row = |key: &FeedKey| self.feed().keys.get(key);
        match (mutation, &mut commit.sequence) {
            (Mutation::NoSequenceCondition, SequenceChange::Advance { read, .. }) => {
                read.version = present;
            }
            (Mutation::NoKeyCondition, SequenceChange::Advance { .. }) => {
                for change in &mut commit.keys {
                    change.before = self.feed().key_row(&change.key);
                }
            }
            (Mutation::NumberKept, SequenceChange::None) => {
                for change in &mut commit.keys {
                    if let Some((after, Some(_))) = &mut change.after {
                        after.number = change.before.and_then(|before| before.number);
                    }
                }
            }
            (Mutation::NoTombstone, SequenceChange::None) => {
                for change in &mut commit.keys {
                    let is_set = row(&change.key).is_some_and(|row| row.value.is_some());
                    if let (true, Some((after, None))) = (is_set, &mut change.after) {
                        // No order waits for this number and no reader sees it, as if the row were absent.
                        after.number = Some(FeedSyncId::NONE);
                    }
                }
            }
            (Mutation::RemovedBeforeHorizon, SequenceChange::UncountKeys(_)) => {
                commit.keys.clear();
                if let Some(raise) = self.unraised.take() {
                    self.tables.execute(&raise);
                }
            }
            _ => {}
        }
    }
}
