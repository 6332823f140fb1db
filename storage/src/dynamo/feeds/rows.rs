//! What the rows of both tables hold, and how they are read.

use super::super::attributes::{number, number_of, text, text_of};
use super::super::client::DynamoClient;
use super::super::error::{CallError, Item};
use crate::feeds::{FeedKey, FeedName, FeedSyncId, FeedValue, Sequence, Update, Version};

/// The partition key of the sequences.
pub(super) const NAME: &str = "name";
/// The partition key of the feeds' rows.
pub(super) const FEED: &str = "feed";
/// Their sort key.
pub(super) const ITEM: &str = "item";

pub(super) const VALUE: &str = "value";
pub(super) const VERSION: &str = "version";
pub(super) const KEYS: &str = "keys";
pub(super) const SETTLED: &str = "settled";
const KEY: &str = "key";
const NUMBER: &str = "number";

/// What the sort key of a key that waits begins with.
pub(super) const PENDING: &str = "p:";
const NUMBERED: &str = "n:";

/// The greatest lead of `value` over `settled`: one publication gives fewer numbers.
pub(super) const UNSETTLED_MAX: u64 = 100;

/// A sequence, and how far readers may go.
#[derive(Debug, Clone, Copy)]
pub(super) struct SequenceRow {
    pub(super) sequence: Sequence,
    /// Everything up to here is seen by every consistent read.
    pub(super) settled: FeedSyncId,
}

/// Where a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyRow {
    pub(super) version: Version,
    /// None while it waits.
    pub(super) number: Option<FeedSyncId>,
}

/// Reads a sequence. None where there is no such feed, or no table.
pub(super) async fn sequence(
    client: &DynamoClient,
    feed: &FeedName,
) -> Result<Option<SequenceRow>, CallError> {
    let table = client.names.sequences();
    let item = match get(client, table, sequence_key(feed)).await {
        Err(error) if error.is_table_missing() => None,
        item => item?,
    };
    let unreadable =
        || CallError::unreadable("GetItem", table, "the row of the sequence makes no sense");
    item.map(|item| decode_sequence(&item).ok_or_else(unreadable)).transpose()
}

/// Reads where a key is. None where it was never written.
pub(super) async fn key_row(
    client: &DynamoClient,
    feed: &FeedName,
    key: &FeedKey,
) -> Result<Option<KeyRow>, CallError> {
    let table = client.names.feeds();
    let item = get(client, table, row_key(feed, &key_item(key))).await?;
    let unreadable =
        || CallError::unreadable("GetItem", table, "the row of the key makes no sense");
    item.map(|item| decode_key(&item).ok_or_else(unreadable)).transpose()
}

/// Reads an item, consistently.
pub(super) async fn get(
    client: &DynamoClient,
    table: &str,
    key: Item,
) -> Result<Option<Item>, CallError> {
    let request = client.sdk.get_item().table_name(table).set_key(Some(key)).consistent_read(true);
    Ok(client.call("GetItem", table, request.send()).await?.item)
}

/// A page of a feed's rows, read consistently: those that a condition on `#item` with these values holds for.
pub(super) async fn query(
    client: &DynamoClient,
    feed: &FeedName,
    condition: &str,
    values: &[(&str, String)],
    start: Option<Item>,
    limit: usize,
) -> Result<(Vec<Item>, Option<Item>), CallError> {
    let table = client.names.feeds();
    let request = client
        .sdk
        .query()
        .table_name(table)
        .key_condition_expression(format!("{FEED} = :feed AND {condition}"))
        .expression_attribute_names("#item", ITEM)
        .expression_attribute_values(":feed", text(feed.as_str()))
        .consistent_read(true)
        .set_exclusive_start_key(start)
        .limit(limit as i32);
    let request = values.iter().fold(request, |request, (name, value)| {
        request.expression_attribute_values(*name, text(value.as_str()))
    });
    let page = client.call("Query", table, request.send()).await?;
    Ok((page.items.unwrap_or_default(), page.last_evaluated_key))
}

/// The key of a sequence.
pub(super) fn sequence_key(feed: &FeedName) -> Item {
    Item::from([(NAME.to_owned(), text(feed.as_str()))])
}

/// The key of a row of a feed.
pub(super) fn row_key(feed: &FeedName, item: &str) -> Item {
    Item::from([(FEED.to_owned(), text(feed.as_str())), (ITEM.to_owned(), text(item))])
}

/// The sort key that says where a key is.
pub(super) fn key_item(key: &FeedKey) -> String {
    format!("k:{key}")
}

/// The sort key of what waits to be published.
pub(super) fn pending_item(key: &FeedKey) -> String {
    format!("{PENDING}{key}")
}

/// The sort key of what was published. As many digits as any number has, so that the rows are in order.
pub(super) fn numbered_item(number: FeedSyncId) -> String {
    format!("{NUMBERED}{:020}", number.0)
}

/// Says where a key is.
pub(super) fn encode_key(feed: &FeedName, key: &FeedKey, row: KeyRow) -> Item {
    let number_there = row.number.map(|there| (NUMBER.to_owned(), number(there.0)));
    let version = (VERSION.to_owned(), number(row.version.0));
    row_key(feed, &key_item(key)).into_iter().chain([version]).chain(number_there).collect()
}

/// What waits to be published.
pub(super) fn encode_pending(
    feed: &FeedName,
    key: &FeedKey,
    version: Version,
    value: Option<&FeedValue>,
) -> Item {
    with_value(row_key(feed, &pending_item(key)), version, value)
}

/// What was published.
pub(super) fn encode_numbered(feed: &FeedName, update: &Update) -> Item {
    let key = (KEY.to_owned(), text(update.key.as_str()));
    let row_key =
        row_key(feed, &numbered_item(update.feed_sync_id)).into_iter().chain([key]).collect();
    with_value(row_key, update.version, update.value.as_ref())
}

fn with_value(row_key: Item, version: Version, value: Option<&FeedValue>) -> Item {
    let value = value.map(|value| (VALUE.to_owned(), text(value.as_str())));
    row_key.into_iter().chain([(VERSION.to_owned(), number(version.0))]).chain(value).collect()
}

pub(super) fn decode_sequence(item: &Item) -> Option<SequenceRow> {
    let value = FeedSyncId(number_of(item, VALUE)?);
    let settled = FeedSyncId(number_of(item, SETTLED)?);
    let (version, keys) = (number_of(item, VERSION)?, number_of(item, KEYS)?);
    let unsettled = value.0.checked_sub(settled.0)?;
    let row = SequenceRow { sequence: Sequence { value, version, keys }, settled };
    Some(row).filter(|_| unsettled <= UNSETTLED_MAX)
}

fn decode_key(item: &Item) -> Option<KeyRow> {
    let number = match item.contains_key(NUMBER) {
        true => Some(FeedSyncId(number_of(item, NUMBER)?)),
        false => None,
    };
    Some(KeyRow { version: Version(number_of(item, VERSION)?), number })
}

/// Reads what was published.
pub(super) fn decode_numbered(item: &Item) -> Option<Update> {
    let key = FeedKey::parse(text_of(item, KEY)?).ok()?;
    let (version, value) = decode_value(item)?;
    Some(Update { feed_sync_id: number_at(text_of(item, ITEM)?)?, key, version, value })
}

/// The key that a row is of which waits to be published.
pub(super) fn pending_at(item: &Item) -> Option<FeedKey> {
    FeedKey::parse(text_of(item, ITEM)?.strip_prefix(PENDING)?).ok()
}

/// The number that a row has.
pub(super) fn number_at(item: &str) -> Option<FeedSyncId> {
    let digits = item.strip_prefix(NUMBERED).filter(|digits| digits.len() == 20)?;
    digits.parse().ok().map(FeedSyncId)
}

/// Version and value of a row that has both; there is no value where the key was deleted.
pub(super) fn decode_value(item: &Item) -> Option<(Version, Option<FeedValue>)> {
    let version = Version(number_of(item, VERSION)?);
    let value = match item.contains_key(VALUE) {
        true => Some(FeedValue::parse(text_of(item, VALUE)?).ok()?),
        false => None,
    };
    Some((version, value))
}
