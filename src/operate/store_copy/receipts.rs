//! The repair of receipt subscriptions without their sequence, or with one behind
//! their rows (docs/decisions/0043-copies-of-a-whole-store.md).
//!
//! Earlier builds copied the rows of subscriptions from SQLite without the sequences. A push that named such a
//! subscription began a new one, whose numbers overwrote receipts. A restored sequence continues above each number that
//! its rows show, so that no reader misses a receipt.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use state_machine::feed::{FeedKey, FeedName, FeedSyncId, Sequence, Version};
use storage::StoreAdmin;
use storage::copied_rows::CopiedRow;
use storage::feeds::FeedState;
use storage::maintenance::Table;

use super::each_row::each_row;
use crate::command::{Job, JobError};

/// Rows in one write.
const WRITTEN_MAX: usize = 1000;

#[derive(Debug, Default)]
pub struct Repaired {
    subscriptions: usize,
    lost: usize,
}

impl Repaired {
    /// What was restored and what was not; empty if nothing had to be.
    pub fn notes(&self) -> Vec<String> {
        let Self { subscriptions, lost } = self;
        let restored =
            format!("restored receipt subscriptions that had lost their sequence: {subscriptions}");
        let not =
            format!("not restored, because later receipts have overwritten them: {lost} receipts");
        let notes = [(restored, *subscriptions), (not, *lost)].into_iter();
        notes.filter(|(_, count)| *count > 0).map(|(note, _)| note).collect()
    }
}

/// What the rows of a receipt subscription show.
#[derive(Debug, Default)]
struct Subscription {
    greatest: FeedSyncId,
    /// Keys without a number. Each may have had one, which no row has any more.
    waiting: usize,
    keys: u64,
    values: u64,
    expected: u64,
}

/// Restores the sequences, while no server uses the store. Repeatable.
pub async fn repair_receipts<R>(
    job: &Job<R>,
    store: &dyn StoreAdmin,
) -> Result<Repaired, JobError> {
    let mut damaged = HashMap::<FeedName, Subscription>::new();
    let feeds = (store, Table::Feeds);
    each_row(job, "searching", feeds, |row| add(&mut damaged, &row)).await?;
    let mut behind = HashMap::<FeedName, Sequence>::new();
    let compare = |row| {
        let CopiedRow::Sequence(FeedState { name, sequence }) = row else { return };
        match damaged.get(&name).map(|found| found.fit(&sequence)) {
            Some(true) => drop(damaged.remove(&name)),
            Some(false) => drop(behind.insert(name, sequence)),
            None => {}
        }
    };
    each_row(job, "searching", (store, Table::Sequences), compare).await?;
    // The sequences are last: an interrupted repair finds them still missing.
    let lost = overwritten(job, store, &damaged).await?;
    let count = lost.len();
    let rows = lost.into_iter().flat_map(|(feed, key, version)| waiting(feed, key, version));
    write(job, feeds, rows.collect()).await?;
    let subscriptions = damaged.len();
    let sequence = |(name, found): (_, Subscription)| {
        let sequence = found.restored(behind.get(&name).copied().unwrap_or_default());
        CopiedRow::Sequence(FeedState { name, sequence })
    };
    let sequences = damaged.into_iter().map(sequence).collect();
    write(job, (store, Table::Sequences), sequences).await?;
    Ok(Repaired { subscriptions, lost: count })
}

fn add(found: &mut HashMap<FeedName, Subscription>, row: &CopiedRow) {
    let (CopiedRow::Key { feed, .. }
    | CopiedRow::Value { feed, .. }
    | CopiedRow::ExpectedReceipt { feed, .. }) = row
    else {
        return;
    };
    if feed.receipts_end().is_none() {
        return;
    }
    let found = found.entry(feed.clone()).or_default();
    match row {
        CopiedRow::Key { number, .. } => {
            found.keys += 1;
            found.waiting += usize::from(number.is_none());
            found.greatest = found.greatest.max(number.unwrap_or_default());
        }
        CopiedRow::Value { number, .. } => {
            found.values += 1;
            found.greatest = found.greatest.max(number.unwrap_or_default());
        }
        _ => found.expected += 1,
    }
}

impl Subscription {
    /// Whether these rows can be those of a sequence.
    fn fit(&self, sequence: &Sequence) -> bool {
        sequence.value >= self.greatest
            && sequence.keys >= self.keys + self.expected
            && self.keys == self.values
    }

    fn restored(&self, before: Sequence) -> Sequence {
        let value = before.value.max(self.greatest).plus(self.waiting);
        Sequence { value, keys: self.keys + self.expected, ..before }
    }
}

/// The keys whose value has another key's in its place.
async fn overwritten<R>(
    job: &Job<R>,
    store: &dyn StoreAdmin,
    damaged: &HashMap<FeedName, Subscription>,
) -> Result<HashSet<(FeedName, FeedKey, Version)>, JobError> {
    let mut lost = HashSet::new();
    if damaged.values().all(|found| found.keys == found.values) {
        return Ok(lost);
    }
    let mut there = HashSet::new();
    let is_damaged =
        |feed: &FeedName| damaged.get(feed).is_some_and(|found| found.keys != found.values);
    let compare = |row| match row {
        CopiedRow::Key { feed, key, version, .. } if is_damaged(&feed) => {
            lost.insert((feed, key, version));
        }
        CopiedRow::Value { feed, key, version, .. } if is_damaged(&feed) => {
            there.insert((feed, key, version));
        }
        _ => {}
    };
    each_row(job, "searching", (store, Table::Feeds), compare).await?;
    lost.retain(|key| !there.contains(key));
    Ok(lost)
}

/// The rows of a receipt whose value is lost: its key waits without one. An ack can still write it.
fn waiting(feed: FeedName, key: FeedKey, version: Version) -> [CopiedRow; 2] {
    let of_key = CopiedRow::Key { feed: feed.clone(), key: key.clone(), version, number: None };
    [of_key, CopiedRow::Value { feed, key, version, number: None, value: None }]
}

async fn write<R>(
    job: &Job<R>,
    (store, table): (&dyn StoreAdmin, Table),
    rows: Vec<CopiedRow>,
) -> Result<(), JobError> {
    for rows in rows.chunks(WRITTEN_MAX) {
        let rows = Arc::new(rows.to_vec());
        job.step(|| store.write_rows(table, rows.clone())).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use state_machine::Time;
    use storage::feeds::FeedValue;

    use super::*;
    use crate::command::fixture::{Fixture, NOW};
    use crate::operate::store_copy::repair::StoreRepair;

    fn subscription(number: u128) -> FeedName {
        FeedName::receipts(NOW, number)
    }

    fn receipt(feed: &FeedName, text: &str, number: Option<u64>) -> [CopiedRow; 2] {
        let (feed, key) = (feed.clone(), FeedKey::parse(text).unwrap());
        let (version, number) = (Version(2), number.map(FeedSyncId));
        let value = FeedValue::parse("expired").ok();
        let of_key = CopiedRow::Key { feed: feed.clone(), key: key.clone(), version, number };
        [of_key, CopiedRow::Value { feed, key, version, number, value }]
    }

    fn state(name: &FeedName, value: u64, keys: u64) -> FeedState {
        let sequence = Sequence { value: FeedSyncId(value), keys, ..Sequence::default() };
        FeedState { name: name.clone(), sequence }
    }

    /// Rows of subscriptions, and of a feed that is none: it has no sequence, which nothing can restore.
    fn rows(lost: &FeedName, whole: &FeedName, behind: &FeedName) -> Vec<CopiedRow> {
        let (key, deadline) = (FeedKey::parse("expected").unwrap(), Time(1));
        let expected = CopiedRow::ExpectedReceipt { feed: lost.clone(), key, deadline };
        let receipts = [
            receipt(lost, "a", Some(1)),
            receipt(lost, "b", Some(7)),
            receipt(lost, "c", None),
            receipt(whole, "a", Some(3)),
            receipt(behind, "a", Some(3)),
            receipt(behind, "b", None),
            receipt(&FeedName::access(), "a", Some(3)),
        ];
        receipts.into_iter().flatten().chain([expected]).collect()
    }

    #[tokio::test]
    async fn sequences_are_restored_above_each_number_that_was_given() {
        let fixture = Fixture::with(&[]).await;
        let store = &fixture.context.store;
        let [lost, whole, behind] = [1, 2, 3].map(subscription);
        store.write_rows(Table::Feeds, Arc::new(rows(&lost, &whole, &behind))).await.unwrap();
        let sequences = vec![state(&whole, 9, 2), state(&behind, 3, 1)];
        let sequences = sequences.into_iter().map(CopiedRow::Sequence).collect();
        store.write_rows(Table::Sequences, Arc::new(sequences)).await.unwrap();
        let repair = || StoreRepair { server_stopped: false };
        let notes = fixture.notes(repair()).await;
        assert_eq!(notes, ["restored receipt subscriptions that had lost their sequence: 2"]);
        let (mut there, mut after) = (Vec::new(), None);
        loop {
            let page = store.read_rows(Table::Sequences, after).await.unwrap();
            there.extend(page.rows);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        // A receipt that waits may have had the next number.
        let expected = [state(&lost, 8, 4), state(&whole, 9, 2), state(&behind, 4, 2)];
        assert!(there == expected.map(CopiedRow::Sequence));
        let notes = fixture.notes(repair()).await;
        assert_eq!(notes, ["no receipt subscription lacks its sequence"]);
    }
}
