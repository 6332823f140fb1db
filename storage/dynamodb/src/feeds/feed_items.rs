//! The rows of both tables.

use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use state_machine::Time;
use storage::feeds::{
    FeedKey, FeedMark, FeedName, FeedState, FeedSyncId, FeedValue, Sequence, Update, Version,
};
use storage::rules::feed_rows::{KeyRow, SequenceRow};

use crate::attributes::{number, number_of, text, text_of};
use crate::client::DynamoClient;
use crate::error::{CallError, Item};

/// The feed of preflight checks. It is not a valid name, so that no feed has it.
pub(crate) const PREFLIGHT_FEED: &str = "(preflight)";

/// The partition key of the sequences.
pub(crate) const NAME: &str = "name";
/// The partition key of the feeds' rows.
pub(crate) const FEED: &str = "feed";
/// The sort key of the feeds' rows.
pub(crate) const ITEM: &str = "item";

pub(super) const VALUE: &str = "value";
pub(super) const VERSION: &str = "version";
pub(super) const KEYS: &str = "keys";
pub(super) const SETTLED: &str = "settled";
/// Missing while nothing is forgotten, as is [`FORGOTTEN`].
pub(super) const HORIZON: &str = "horizon";
pub(super) const FORGOTTEN: &str = "forgotten";
/// Missing before the first mark, as is [`MARKED_AT`].
pub(super) const MARK: &str = "mark";
pub(super) const MARKED_AT: &str = "marked_at";
const KEY: &str = "key";
const NUMBER: &str = "number";

/// The prefix of a waiting key's sort key.
pub(super) const PENDING: &str = "p:";
const NUMBERED: &str = "n:";

/// The greatest lead of `value` over `settled`: one publication gives fewer numbers.
pub(super) const UNSETTLED_MAX: u64 = 100;

/// A consistent page of the feed's rows that match a condition on `#item`, and the start of the
/// next page.
pub(super) async fn query(
    client: &DynamoClient,
    feed: &FeedName,
    condition: &str,
    values: &[(&str, String)],
    start: Option<Item>,
    limit: usize,
) -> Result<(Vec<Item>, Option<Item>), CallError> {
    query_partition(client, feed.as_str(), condition, values, start, limit).await
}

/// As [`query`], of any partition of the table.
pub(super) async fn query_partition(
    client: &DynamoClient,
    partition: &str,
    condition: &str,
    values: &[(&str, String)],
    start: Option<Item>,
    limit: usize,
) -> Result<(Vec<Item>, Option<Item>), CallError> {
    let table = &client.names.feeds;
    let request = client
        .sdk
        .query()
        .table_name(table)
        .key_condition_expression(format!("{FEED} = :feed AND {condition}"))
        .expression_attribute_names("#item", ITEM)
        .expression_attribute_values(":feed", text(partition))
        .consistent_read(true)
        .set_exclusive_start_key(start)
        .limit(limit as i32);
    let request = values.iter().fold(request, |request, (name, value)| {
        request.expression_attribute_values(*name, text(value.as_str()))
    });
    let page = client.call("Query", table, request.send()).await?;
    Ok((page.items.unwrap_or_default(), page.last_evaluated_key))
}

pub(super) fn sequence_key(feed: &FeedName) -> Item {
    Item::from([(NAME.to_owned(), text(feed.as_str()))])
}

pub(super) fn update_sequence(client: &DynamoClient, feed: &FeedName) -> UpdateItemFluentBuilder {
    let request = client.sdk.update_item().table_name(&client.names.sequences);
    request.set_key(Some(sequence_key(feed)))
}

pub(super) fn row_key(feed: &FeedName, item: &str) -> Item {
    key_in(feed.as_str(), item)
}

pub(super) fn key_in(partition: &str, item: &str) -> Item {
    Item::from([(FEED.to_owned(), text(partition)), (ITEM.to_owned(), text(item))])
}

pub(super) fn key_item(key: &FeedKey) -> String {
    format!("k:{key}")
}

pub(super) fn pending_item(key: &FeedKey) -> String {
    format!("{PENDING}{key}")
}

/// Padded to the digits of the greatest number, so that the rows are in order.
pub(super) fn numbered_item(number: FeedSyncId) -> String {
    format!("{NUMBERED}{:020}", number.0)
}

pub(crate) fn encode_key(feed: &FeedName, key: &FeedKey, row: KeyRow) -> Item {
    let number_there = row.number.map(|there| (NUMBER.to_owned(), number(there.0)));
    let version = (VERSION.to_owned(), number(row.version.0));
    row_key(feed, &key_item(key)).into_iter().chain([version]).chain(number_there).collect()
}

/// The row of a value: of one that waits, or of a published one.
pub(crate) fn encode_value(
    feed: &FeedName,
    key: &FeedKey,
    version: Version,
    number_there: Option<FeedSyncId>,
    value: Option<&FeedValue>,
) -> Item {
    let row_key = match number_there {
        None => row_key(feed, &pending_item(key)),
        Some(there) => {
            let key = (KEY.to_owned(), text(key.as_str()));
            row_key(feed, &numbered_item(there)).into_iter().chain([key]).collect()
        }
    };
    let value = value.map(|value| (VALUE.to_owned(), text(value.as_str())));
    row_key.into_iter().chain([(VERSION.to_owned(), number(version.0))]).chain(value).collect()
}

/// The item of a sequence without an unfinished publication.
pub(crate) fn encode_sequence(feed: &FeedState) -> Item {
    let Sequence { value, version, keys, horizon, forgotten, mark } = feed.sequence;
    let numbers = [(VALUE, value.0), (SETTLED, value.0), (VERSION, version), (KEYS, keys)];
    let forgotten = [(HORIZON, horizon.0), (FORGOTTEN, forgotten.0)];
    let forgotten = forgotten.into_iter().filter(|(_, there)| *there > 0);
    let mark = mark.map(|mark| [(MARK, mark.number.0), (MARKED_AT, mark.at.0)]);
    let numbers = numbers.into_iter().chain(forgotten).chain(mark.into_iter().flatten());
    let numbers = numbers.map(|(name, there)| (name.to_owned(), number(there)));
    sequence_key(&feed.name).into_iter().chain(numbers).collect()
}

/// The feed that an attribute names.
pub(crate) fn feed_of(item: &Item, attribute: &str) -> Option<FeedName> {
    FeedName::from_store(text_of(item, attribute)?).ok()
}

/// Whether a preflight check that was interrupted left the item.
pub(crate) fn is_preflight(item: &Item) -> bool {
    [NAME, FEED].iter().any(|name| text_of(item, name) == Some(PREFLIGHT_FEED))
}

pub(crate) fn decode_sequence(item: &Item) -> Option<SequenceRow> {
    let value = FeedSyncId(number_of(item, VALUE)?);
    let settled = FeedSyncId(number_of(item, SETTLED)?);
    let (version, keys) = (number_of(item, VERSION)?, number_of(item, KEYS)?);
    let unsettled = value.0.checked_sub(settled.0)?;
    let or_zero = |name| if item.contains_key(name) { number_of(item, name) } else { Some(0) };
    let (horizon, forgotten) = (FeedSyncId(or_zero(HORIZON)?), Version(or_zero(FORGOTTEN)?));
    let mark = number_of(item, MARK).zip(number_of(item, MARKED_AT));
    let mark = mark.map(|(number, at)| FeedMark { number: FeedSyncId(number), at: Time(at) });
    let sequence = Sequence { value, version, keys, horizon, forgotten, mark };
    let row = SequenceRow { sequence, settled };
    Some(row).filter(|_| unsettled <= UNSETTLED_MAX)
}

pub(crate) fn decode_key(item: &Item) -> Option<KeyRow> {
    let number = match item.contains_key(NUMBER) {
        true => Some(FeedSyncId(number_of(item, NUMBER)?)),
        false => None,
    };
    Some(KeyRow { version: Version(number_of(item, VERSION)?), number })
}

pub(crate) fn decode_numbered(item: &Item) -> Option<Update> {
    let key = FeedKey::parse(text_of(item, KEY)?).ok()?;
    let (version, value) = decode_value(item)?;
    Some(Update { feed_sync_id: number_at(text_of(item, ITEM)?)?, key, version, value })
}

/// The key of a waiting row.
pub(crate) fn pending_at(item: &Item) -> Option<FeedKey> {
    FeedKey::parse(text_of(item, ITEM)?.strip_prefix(PENDING)?).ok()
}

/// The number of a published row.
pub(super) fn number_at(item: &str) -> Option<FeedSyncId> {
    let digits = item.strip_prefix(NUMBERED).filter(|digits| digits.len() == 20)?;
    digits.parse().ok().map(FeedSyncId)
}

/// Version and value of a waiting or published row; a deleted key has no value.
pub(crate) fn decode_value(item: &Item) -> Option<(Version, Option<FeedValue>)> {
    let version = Version(number_of(item, VERSION)?);
    let value = match item.contains_key(VALUE) {
        true => Some(FeedValue::parse(text_of(item, VALUE)?).ok()?),
        false => None,
    };
    Some((version, value))
}
