//! The rules of feeds ([`FeedTables`](crate::FeedTables)).

use std::collections::BTreeSet;

use state_machine::feed::Publication;

use super::feed_rows::{
    Attempts, Committed, ExpectedChange, FeedChange, FeedRows, KeyChange, KeyRow, PendingPage,
    SequenceChange,
};
use crate::feeds::{
    FeedKey, FeedName, FeedPage, FeedSyncId, FeedValue, Forgotten, PublishResult, Sequence,
    Version, WriteResult,
};
use crate::store::PageLimit;

/// What becomes of a key that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rewrite {
    Republish,
    Delete,
}

/// Sets a key. Calls `key`, `sequence` for a new key, and `commit`.
pub async fn write<R: FeedRows>(
    rows: &R,
    feed: &FeedName,
    key: &FeedKey,
    value: &FeedValue,
    keys_max: u64,
) -> Result<WriteResult, R::Error> {
    let mut attempts = Attempts::new();
    loop {
        let before = rows.key(feed, key).await?;
        let (version, sequence) = match before {
            Some(before) => (before.version, SequenceChange::None),
            None => {
                let Sequence { keys, forgotten, .. } = read_sequence(rows, feed).await?;
                if keys >= keys_max {
                    return Ok(WriteResult::TooManyKeys);
                }
                (forgotten, SequenceChange::CountKey { keys_max, forgotten })
            }
        };
        let change = waiting(feed, key, before, version.next(), Some(value), sequence);
        match rows.commit(change).await? {
            Committed::Done => return Ok(WriteResult::Done(version.next())),
            Committed::Refused(refused) => rows.next_attempt(&mut attempts, refused.lost).await?,
        }
    }
}

/// Changes a key that is there; none if it is not, or if there is nothing to delete. Calls `key`, `value` and `commit`.
pub async fn rewrite<R: FeedRows>(
    rows: &R,
    feed: &FeedName,
    key: &FeedKey,
    rewrite: Rewrite,
) -> Result<Option<Version>, R::Error> {
    let mut attempts = Attempts::new();
    loop {
        let Some(before) = rows.key(feed, key).await? else { return Ok(None) };
        let lost = match rows.value(feed, key, before).await? {
            Some(None) if rewrite == Rewrite::Delete => return Ok(None),
            Some(value) => {
                let value = value.as_ref().filter(|_| rewrite == Rewrite::Republish);
                let version = before.version.next();
                let unchanged = SequenceChange::None;
                let change = waiting(feed, key, Some(before), version, value, unchanged);
                match rows.commit(change).await? {
                    Committed::Done => return Ok(Some(version)),
                    Committed::Refused(refused) => refused.lost,
                }
            }
            None => None,
        };
        rows.next_attempt(&mut attempts, lost).await?;
    }
}

/// The change by which a key gives up its number and waits.
pub(super) fn waiting<'a>(
    feed: &'a FeedName,
    key: &'a FeedKey,
    before: Option<KeyRow>,
    version: Version,
    value: Option<&'a FeedValue>,
    sequence: SequenceChange,
) -> FeedChange<'a> {
    let after = Some((KeyRow { version, number: None }, value));
    let keys = vec![KeyChange { key, before, after }];
    FeedChange { feed, expected: ExpectedChange::None, keys, sequence }
}

/// That of a feed without a row if there is none.
pub(super) async fn read_sequence<R: FeedRows>(
    rows: &R,
    feed: &FeedName,
) -> Result<Sequence, R::Error> {
    let row = rows.sequence(feed).await?;
    Ok(row.map_or_else(Sequence::default, |row| row.sequence))
}

/// Numbers waiting keys; none if there is no such feed. Calls `sequence`, `pending`, `settle` and `commit`.
pub async fn publish<R: FeedRows>(
    rows: &R,
    feed: &FeedName,
    after: Option<&FeedKey>,
    limit: usize,
) -> Result<Option<PublishResult>, R::Error> {
    let limit = limit.clamp(1, R::BOUNDS.published);
    let mut attempts = Attempts::new();
    // A row that is refused twice is wrong, and not only late.
    let mut refused = BTreeSet::new();
    loop {
        let Some(row) = rows.sequence(feed).await? else { return Ok(None) };
        let page = rows.pending(feed, after, limit, &refused).await?;
        let mut lost = None;
        if rows.settle(feed, row).await? {
            let pending = page.rows.iter().map(|row| row.pending.clone()).collect();
            let Some(publication) = Publication::of(row.sequence, pending) else {
                let next = page.last.filter(|_| !page.is_all);
                return Ok(Some(PublishResult { count: 0, head: row.sequence.value, next }));
            };
            match rows.commit(numbering(feed, &publication, &page)).await? {
                Committed::Done => return Ok(Some(publication.outcome(page.is_all))),
                Committed::Refused(by) => {
                    refused.extend(by.keys.iter().map(|at| page.rows[*at].pending.clone()));
                    lost = by.lost;
                }
            }
        }
        rows.next_attempt(&mut attempts, lost).await?;
    }
}

fn numbering<'a>(
    feed: &'a FeedName,
    publication: &'a Publication,
    page: &'a PendingPage,
) -> FeedChange<'a> {
    let keys = publication.assignments.iter().zip(&page.rows).map(|(assigned, row)| {
        let before = KeyRow { version: assigned.pending.version, number: None };
        let after = KeyRow { version: assigned.version, number: Some(assigned.feed_sync_id) };
        let after = Some((after, row.value.as_ref()));
        KeyChange { key: &assigned.pending.key, before: Some(before), after }
    });
    let sequence = SequenceChange::Advance { read: publication.read, to: publication.sequence };
    FeedChange { feed, expected: ExpectedChange::None, keys: keys.collect(), sequence }
}

/// The updates after `after`; none if there is no such feed. Calls `sequence` and `numbered`, and `sequence` again if
/// numbers are missing.
///
/// The sequence is read first: of a later publication a part may be visible, and is left to the next page.
pub async fn fetch<R: FeedRows>(
    rows: &R,
    feed: &FeedName,
    after: FeedSyncId,
    limit: PageLimit,
) -> Result<Option<FeedPage>, R::Error> {
    let Some(row) = rows.sequence(feed).await? else { return Ok(None) };
    let horizon = row.sequence.horizon;
    let begin = if after.is_none() { horizon } else { after };
    let mut page = FeedPage { updates: Vec::new(), cursor: begin, head: row.settled, horizon };
    if begin >= page.head || page.is_too_late(after) {
        return Ok(Some(page));
    }
    let limit = PageLimit { rows: limit.rows.clamp(1, R::BOUNDS.fetched), ..limit };
    let numbered = rows.numbered(feed, begin, page.head, limit).await?;
    page.cursor = match numbered.last {
        _ if numbered.is_all => page.head,
        last => last.unwrap_or(begin),
    };
    page.updates = numbered.updates;
    let has_gaps = page.updates.len() as u64 != page.cursor.0 - begin.0;
    if after.is_none() || !has_gaps {
        return Ok(Some(page));
    }
    // Rows may have been removed since the sequence was read. Their removal raised the horizon before.
    let row = rows.sequence(feed).await?;
    Ok(row.map(|row| FeedPage { horizon: row.sequence.horizon, ..page }))
}

/// Raises the horizon, and removes the first entries up to it; none if there is no such feed. Calls `sequence`, `numbered`,
/// `raise_horizon` if it changes, and `commit` if there are entries.
///
/// The horizon is raised before the first row is removed: a reader that finds a number missing reads it after the rows.
pub async fn forget<R: FeedRows>(
    rows: &R,
    feed: &FeedName,
    through: FeedSyncId,
    limit: usize,
) -> Result<Option<Forgotten>, R::Error> {
    let limit = PageLimit { rows: limit.clamp(1, R::BOUNDS.forgotten), bytes: FORGOTTEN_BYTES_MAX };
    let mut attempts = Attempts::new();
    loop {
        let Some(row) = rows.sequence(feed).await? else { return Ok(None) };
        let read = row.sequence;
        let horizon = read.horizon.max(through.min(row.settled));
        let old = match horizon.is_none() {
            true => Default::default(),
            false => rows.numbered(feed, FeedSyncId::NONE, horizon, limit).await?,
        };
        let is_all = old.is_all || horizon.is_none();
        let greatest = old.updates.iter().map(|old| old.version).max().unwrap_or_default();
        let raised = Sequence { horizon, forgotten: read.forgotten.max(greatest), ..read };
        let mut lost = None;
        if read == raised || rows.raise_horizon(feed, &read, &raised).await? {
            let count = old.updates.len();
            if count == 0 {
                return Ok(Some(Forgotten { count, is_all }));
            }
            let keys = old.updates.iter().map(|old| {
                let row = KeyRow { version: old.version, number: Some(old.feed_sync_id) };
                KeyChange { key: &old.key, before: Some(row), after: None }
            });
            let (keys, sequence) = (keys.collect(), SequenceChange::UncountKeys(count));
            let expected = ExpectedChange::None;
            match rows.commit(FeedChange { feed, expected, keys, sequence }).await? {
                Committed::Done => return Ok(Some(Forgotten { count, is_all })),
                Committed::Refused(refused) => lost = refused.lost,
            }
        }
        rows.next_attempt(&mut attempts, lost).await?;
    }
}

/// Bytes of values after which a call forgets no further entry: their rows are read before.
const FORGOTTEN_BYTES_MAX: usize = 4 << 20;
