//! The rows of feeds, of their keys, and of expected receipts, as the rules read and write them.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use aws_sdk_dynamodb::types::{Get, TransactGetItem};
use state_machine::Time;
use state_machine::feed::UnpublishedKey;
use storage::feeds::{FeedKey, FeedName, FeedSyncId, FeedValue, Sequence};
use storage::receipts::ExpectedReceipt;
use storage::rules::feed_rows::{
    Attempts, CommitBounds, Committed, FeedChange, FeedRows, KeyRow, NumberedPage, PendingPage,
    PendingRow, Refused, SequenceChange, SequenceRow,
};
use storage::store::{Cursor, PageLimit};
use tokio::time::sleep;

use super::expected_receipts;
use super::feed_items::{self, FEED, FORGOTTEN, HORIZON, ITEM, KEYS, NAME, VERSION};
use super::transaction::{Part, TRANSACT, actions, delete, remove_sequence, transact};
use crate::attributes::{number, number_of, text_of};
use crate::client::DynamoClient;
use crate::error::{CallError, Item, applied, if_table};

/// Bytes of keys and values in one publication. A transaction has 4 MB, and holds each twice: as
/// the waiting row and as the published row.
const PUBLISHED_BYTES_MAX: usize = 1 << 20;
/// Requests of one read, unreadable rows included.
const QUERIES_MAX: u32 = 10;

/// Items that one transaction removes: it has a hundred actions.
const REMOVED_MAX: usize = 100;

/// Attempts of one call.
const ATTEMPTS_MAX: u32 = 20;

impl FeedRows for DynamoClient {
    type Error = CallError;

    /// A transaction has a hundred actions: three for a key that is published, two for one that is forgotten, and one for
    /// the sequence.
    const BOUNDS: CommitBounds = CommitBounds {
        published: 33,
        forgotten: 49,
        fetched: 1000,
        receipts: expected_receipts::DECIDED_MAX,
    };

    /// None if there is no such feed, or no table.
    async fn sequence(&self, feed: &FeedName) -> Result<Option<SequenceRow>, CallError> {
        let table = &self.names.sequences;
        let item = if_table(self.get(table, feed_items::sequence_key(feed)).await)?.flatten();
        let unreadable =
            || CallError::unreadable("GetItem", table, "the row of the sequence is unreadable");
        item.map(|item| feed_items::decode_sequence(&item).ok_or_else(unreadable)).transpose()
    }

    /// None if the key was never written.
    async fn key(&self, feed: &FeedName, key: &FeedKey) -> Result<Option<KeyRow>, CallError> {
        let table = &self.names.feeds;
        let item = self.get(table, feed_items::row_key(feed, &feed_items::key_item(key))).await?;
        let unreadable =
            || CallError::unreadable("GetItem", table, "the row of the key is unreadable");
        item.map(|item| feed_items::decode_key(&item).ok_or_else(unreadable)).transpose()
    }

    /// The value of a key whose row was read: the outer `None` if the key changed meanwhile, the inner
    /// one if it is deleted.
    async fn value(
        &self,
        feed: &FeedName,
        key: &FeedKey,
        row: KeyRow,
    ) -> Result<Option<Option<FeedValue>>, CallError> {
        let item =
            row.number.map_or_else(|| feed_items::pending_item(key), feed_items::numbered_item);
        let item = self.get(&self.names.feeds, feed_items::row_key(feed, &item)).await?;
        let found = item.as_ref().and_then(feed_items::decode_value);
        Ok(found.filter(|(version, _)| *version == row.version).map(|(_, value)| value))
    }

    /// Skips unreadable rows and those of `refused`, whose version is not that of their key.
    async fn pending(
        &self,
        feed: &FeedName,
        after: Option<&FeedKey>,
        most: usize,
        refused: &BTreeSet<UnpublishedKey>,
    ) -> Result<PendingPage, CallError> {
        let (mut page, mut bytes) = (PendingPage::default(), 0);
        let condition = "begins_with(#item, :pending)";
        let values = [(":pending", feed_items::PENDING.to_owned())];
        let mut start =
            after.map(|after| feed_items::row_key(feed, &feed_items::pending_item(after)));
        for _query in 0..QUERIES_MAX {
            // One row more shows whether others wait after these.
            let (items, next) =
                feed_items::query(self, feed, condition, &values, start, most + 1).await?;
            for item in &items {
                let row = decode_pending(item).filter(|row| !refused.contains(&row.pending));
                let Some(row) = row else {
                    self.count_unreadable();
                    page.last = feed_items::pending_at(item).or(page.last.take());
                    continue;
                };
                bytes += row.pending.key.as_str().len() + row.value.as_ref().map_or(0, bytes_of);
                let is_full = page.rows.len() >= most || bytes > PUBLISHED_BYTES_MAX;
                if !page.rows.is_empty() && is_full {
                    return Ok(page);
                }
                page.last = Some(row.pending.key.clone());
                page.rows.push(row);
            }
            page.is_all = next.is_none();
            if page.is_all || !page.rows.is_empty() {
                return Ok(page);
            }
            start = next;
        }
        let what = "all rows that wait to be published are unreadable: remove them";
        let unreadable = CallError::unreadable("Query", &self.names.feeds, what);
        if page.last.is_some() { Ok(page) } else { Err(unreadable) }
    }

    /// Of a page without readable rows, the next is read too, [`QUERIES_MAX`] times.
    async fn numbered(
        &self,
        feed: &FeedName,
        after: FeedSyncId,
        last: FeedSyncId,
        limit: PageLimit,
    ) -> Result<NumberedPage, CallError> {
        let (mut page, mut bytes) = (NumberedPage::default(), 0);
        let condition = "#item BETWEEN :first AND :last";
        let [first, last] = [after.plus(1), last].map(feed_items::numbered_item);
        let values = [(":first", first), (":last", last)];
        let mut start = None;
        for _query in 0..QUERIES_MAX {
            // One row more shows whether the page is the last.
            let (items, next) =
                feed_items::query(self, feed, condition, &values, start, limit.rows + 1).await?;
            for item in &items {
                if limit.is_reached(page.updates.len(), bytes) {
                    return Ok(page);
                }
                match feed_items::decode_numbered(item) {
                    Some(update) => {
                        bytes += update.value.as_ref().map_or(0, bytes_of);
                        page.updates.push(update);
                    }
                    None => self.count_unreadable(),
                }
                page.last = text_of(item, ITEM).and_then(feed_items::number_at).or(page.last);
            }
            page.is_all = next.is_none();
            if page.is_all || !page.updates.is_empty() {
                return Ok(page);
            }
            start = next;
        }
        let what = "all rows in place of updates are unreadable: remove them";
        let unreadable = CallError::unreadable("Query", &self.names.feeds, what);
        if page.last.is_some() { Ok(page) } else { Err(unreadable) }
    }

    /// Raises the horizon and the greatest forgotten version, unless another node did meanwhile.
    async fn raise_horizon(
        &self,
        feed: &FeedName,
        read: &Sequence,
        raised: &Sequence,
    ) -> Result<bool, CallError> {
        let table = &self.names.sequences;
        let unchanged = |name: &str, read: u64| match read {
            0 => format!("attribute_not_exists(#{name})"),
            _ => format!("#{name} = :{name}"),
        };
        let horizon = unchanged(HORIZON, read.horizon.0);
        let forgotten = unchanged(FORGOTTEN, read.forgotten.0);
        let mut request = feed_items::update_sequence(self, feed)
            .update_expression("SET #horizon = :new_horizon, #forgotten = :new_forgotten")
            .condition_expression(format!("attribute_exists(#name) AND {horizon} AND {forgotten}"))
            .expression_attribute_names("#name", NAME)
            .expression_attribute_names("#horizon", HORIZON)
            .expression_attribute_names("#forgotten", FORGOTTEN)
            .expression_attribute_values(":new_horizon", number(raised.horizon.0))
            .expression_attribute_values(":new_forgotten", number(raised.forgotten.0));
        for (name, read) in [(":horizon", read.horizon.0), (":forgotten", read.forgotten.0)] {
            if read > 0 {
                request = request.expression_attribute_values(name, number(read));
            }
        }
        applied(self.call("UpdateItem", table, request.send()).await)
    }

    /// Raises `settled` to the last number for a publisher that has not done so. Returns false if
    /// another publisher changed the sequence meanwhile.
    async fn settle(&self, feed: &FeedName, row: SequenceRow) -> Result<bool, CallError> {
        if row.settled == row.sequence.value {
            return Ok(true);
        }
        until_whole(self, feed, row).await?;
        settle(self, feed, row.sequence).await
    }

    /// A page of one partition. The cursor is the partition, and the item before the next page in it.
    async fn receipts_due(
        &self,
        now: Time,
        after: Option<Cursor>,
    ) -> Result<(Vec<ExpectedReceipt>, Option<Cursor>), CallError> {
        let after = after.as_ref().and_then(|after| after.as_str().split_once(' '));
        let part = after.and_then(|(part, _)| part.parse().ok()).unwrap_or(0);
        let name = expected_receipts::partition(part);
        let item = after.map(|(_, item)| item).filter(|item| !item.is_empty());
        let start = item.map(|item| feed_items::key_in(&name, item));
        let values = [(":last", format!("{:020}", now.0 + 1))];
        let found = feed_items::query_partition(
            self,
            &name,
            "#item < :last",
            &values,
            start,
            expected_receipts::PAGE_ROWS,
        );
        let (items, next) = if_table(found.await)?.unwrap_or_default();
        let due = items.iter().filter_map(|item| {
            let due = expected_receipts::decode(item);
            due.is_none().then(|| self.count_unreadable());
            due
        });
        let next = match next.as_ref().and_then(|next| text_of(next, ITEM)) {
            Some(item) => Some(format!("{part} {item}")),
            None => (part + 1 < expected_receipts::PARTS).then(|| format!("{} ", part + 1)),
        };
        Ok((due.collect(), next.map(Cursor::new)))
    }

    async fn remove_ended(&self, now: Time) -> Result<(u64, bool), CallError> {
        remove_ended(self, now).await
    }

    /// Executes a change, and lets readers see it if it is a publication.
    async fn commit(&self, change: FeedChange<'_>) -> Result<Committed<CallError>, CallError> {
        let (parts, actions): (Vec<_>, Vec<_>) = actions(self, &change).into_iter().unzip();
        match transact(self, actions).await {
            Ok(()) => {}
            Err(lost) => {
                let Some(at) = lost.refused_actions() else { return Err(lost) };
                let of_change = at.into_iter().filter_map(|at| parts.get(at));
                let of_change: Vec<_> = of_change.copied().collect();
                let key = |part: &Part| if let Part::Key(at) = part { Some(*at) } else { None };
                return Ok(Committed::Refused(Refused {
                    expected: of_change.contains(&Part::Expected),
                    keys: of_change.iter().filter_map(key).collect(),
                    lost: Some(lost),
                }));
            }
        }
        if let SequenceChange::Advance { to, .. } = change.sequence {
            // A publisher that published since has settled this before.
            let settled = settle(self, change.feed, to).await;
            let _is_last = settled.map_err(|error| error.after_writes(true))?;
        }
        Ok(Committed::Done)
    }

    fn concurrent(&self) -> usize {
        self.options.rows_in_flight_max.max(1)
    }

    /// Waits before another attempt. The last one begins within the time of one request. The error is that of the last one if
    /// there is none.
    async fn next_attempt(
        &self,
        attempts: &mut Attempts,
        lost: Option<CallError>,
    ) -> Result<(), CallError> {
        let lost = lost.unwrap_or_else(|| CallError::contended(TRANSACT, &self.names.feeds));
        attempts.count += 1;
        attempts.indeterminate |= lost.is_indeterminate();
        let is_late = attempts.begun.elapsed() >= self.options.operation_timeout;
        if attempts.count >= ATTEMPTS_MAX || is_late {
            return Err(lost.after_writes(attempts.indeterminate));
        }
        sleep(any_part_of(self.pause_before(attempts.count))).await;
        Ok(())
    }
}

fn decode_pending(item: &Item) -> Option<PendingRow> {
    let (version, value) = feed_items::decode_value(item)?;
    Some(PendingRow {
        pending: UnpublishedKey { key: feed_items::pending_at(item)?, version },
        value,
    })
}

fn bytes_of(value: &FeedValue) -> usize {
    value.as_str().len()
}

/// Raises `settled` to the last number of a finished publication. Returns whether it still is the
/// last one.
async fn settle(
    client: &DynamoClient,
    feed: &FeedName,
    sequence: Sequence,
) -> Result<bool, CallError> {
    let table = &client.names.sequences;
    let request = feed_items::update_sequence(client, feed)
        .update_expression("SET settled = :settled")
        .condition_expression("version = :version")
        .expression_attribute_values(":settled", number(sequence.value.0))
        .expression_attribute_values(":version", number(sequence.version));
    applied(client.call("UpdateItem", table, request.send()).await)
}

/// Returns once the whole publication of these numbers is finished: a transaction that reads what
/// another writes is rejected until then.
async fn until_whole(
    client: &DynamoClient,
    feed: &FeedName,
    row: SequenceRow,
) -> Result<(), CallError> {
    let table = &client.names.feeds;
    let numbers = row.settled.0 + 1..=row.sequence.value.0;
    let gets = numbers.map(|number| {
        let key = feed_items::row_key(feed, &feed_items::numbered_item(FeedSyncId(number)));
        let get =
            Get::builder().table_name(table).set_key(Some(key)).projection_expression(VERSION);
        let get = get.build().expect("it has a table and a key");
        TransactGetItem::builder().get(get).build()
    });
    let request = client.sdk.transact_get_items().set_transact_items(Some(gets.collect()));
    client.call("TransactGetItems", table, request.send()).await.map(drop)
}

/// Removes the subscriptions that have ended. DynamoDB has no order of partition keys, so this reads all sequences. Returns
/// whether one of them was written meanwhile, and is left to the next call.
async fn remove_ended(client: &DynamoClient, now: Time) -> Result<(u64, bool), CallError> {
    let (mut ended, mut is_more, mut start) = (0, false, None);
    loop {
        let page = client.scan(&client.names.sequences, None, start, None).await;
        let (items, next) = if_table(page)?.unwrap_or_default();
        for item in &items {
            let feed = feed_items::feed_of(item, NAME);
            let is_over = |feed: &FeedName| feed.receipts_end().is_some_and(|end| end <= now);
            if let Some(feed) = feed.filter(is_over) {
                let is_removed = remove_all(client, &feed, number_of(item, KEYS)).await?;
                ended += u64::from(is_removed);
                is_more |= !is_removed;
            }
        }
        start = match next {
            Some(next) => Some(next),
            None => return Ok((ended, is_more)),
        };
    }
}

/// Removes a feed, its sequence last and only if it still counts as many keys: an ack may have written one meanwhile.
/// Returns whether it did.
async fn remove_all(
    client: &DynamoClient,
    feed: &FeedName,
    keys: Option<u64>,
) -> Result<bool, CallError> {
    let values = [(":first", "!".to_owned())];
    loop {
        let found =
            feed_items::query(client, feed, "#item >= :first", &values, None, REMOVED_MAX).await;
        let (items, _) = if_table(found)?.unwrap_or_default();
        if items.is_empty() {
            break;
        }
        let keys = items.into_iter().map(|mut item| {
            item.retain(|name, _| [FEED, ITEM].contains(&name.as_str()));
            delete(client, item)
        });
        transact(client, keys.collect()).await?;
    }
    match transact(client, vec![remove_sequence(client, feed, keys)]).await {
        Err(error) if error.refused_actions().is_some() => Ok(false),
        removed => removed.map(|()| true),
    }
}

/// Jitter, so that two calls that conflicted do not conflict again.
fn any_part_of(pause: Duration) -> Duration {
    let thousandths = RandomState::new().hash_one(0) % 1000;
    pause * thousandths as u32 / 1000
}
