//! Reads the keys that wait to be published.

use std::collections::BTreeSet;

use state_machine::feed::UnpublishedKey;

use super::super::client::DynamoClient;
use super::super::error::{CallError, Item};
use super::rows;
use crate::feeds::{FeedKey, FeedName, FeedValue};

/// Keys in one publication: three actions each and one for the sequence, of the hundred that a
/// transaction has.
pub(super) const PUBLISHED_MAX: usize = 33;
/// Bytes of keys and values in one publication. A transaction has 4 MB, and holds each twice: as
/// the waiting row and as the published row.
const BYTES_MAX: usize = 1 << 20;
/// Requests of one read, unreadable rows included.
const QUERIES_MAX: u32 = 10;

/// A page of waiting keys.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) rows: Vec<WaitingRow>,
    /// Whether no key waits after these.
    pub(super) is_all: bool,
    /// The last key that was read.
    pub(super) last: Option<FeedKey>,
    bytes: usize,
}

/// A waiting key and its value.
#[derive(Debug)]
pub(super) struct WaitingRow {
    pub(super) pending: UnpublishedKey,
    pub(super) value: Option<FeedValue>,
}

/// The first waiting keys after `after`. Skips unreadable rows and those of `refused`, whose
/// version is not that of their key.
pub(super) async fn read(
    client: &DynamoClient,
    feed: &FeedName,
    after: Option<&FeedKey>,
    limit: usize,
    refused: &BTreeSet<UnpublishedKey>,
) -> Result<Waiting, CallError> {
    let limit = limit.clamp(1, PUBLISHED_MAX);
    let mut waiting = Waiting::default();
    let condition = "begins_with(#item, :pending)";
    let values = [(":pending", rows::PENDING.to_owned())];
    let mut start = after.map(|after| rows::row_key(feed, &rows::pending_item(after)));
    for _query in 0..QUERIES_MAX {
        // One row more shows whether others wait after these.
        let (items, next) = rows::query(client, feed, condition, &values, start, limit + 1).await?;
        if !waiting.take_in(client, &items, limit, refused) {
            return Ok(waiting);
        }
        waiting.is_all = next.is_none();
        if waiting.is_all || !waiting.rows.is_empty() {
            return Ok(waiting);
        }
        start = next;
    }
    let what = "all rows that wait to be published are unreadable: remove them";
    let unreadable = CallError::unreadable("Query", &client.names.feeds, what);
    if waiting.last.is_some() { Ok(waiting) } else { Err(unreadable) }
}

impl Waiting {
    /// Takes rows up to the limits. Returns whether these are all.
    fn take_in(
        &mut self,
        client: &DynamoClient,
        items: &[Item],
        limit: usize,
        refused: &BTreeSet<UnpublishedKey>,
    ) -> bool {
        for item in items {
            let Some(row) = decode(item).filter(|row| !refused.contains(&row.pending)) else {
                client.count_unreadable();
                self.last = rows::pending_at(item).or(self.last.take());
                continue;
            };
            let bytes = self.bytes + row.bytes();
            if !self.rows.is_empty() && (self.rows.len() >= limit || bytes > BYTES_MAX) {
                return false;
            }
            self.bytes = bytes;
            self.last = Some(row.pending.key.clone());
            self.rows.push(row);
        }
        true
    }
}

impl WaitingRow {
    fn bytes(&self) -> usize {
        let value = self.value.as_ref().map_or(0, |value| value.as_str().len());
        self.pending.key.as_str().len() + value
    }
}

fn decode(item: &Item) -> Option<WaitingRow> {
    let (version, value) = rows::decode_value(item)?;
    Some(WaitingRow { pending: UnpublishedKey { key: rows::pending_at(item)?, version }, value })
}
