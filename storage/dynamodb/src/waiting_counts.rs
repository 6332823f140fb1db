//! Counts of the messages that wait for a user agent: an item between the channels and the messages.
//!
//! | attribute | meaning |
//! |---|---|
//! | `messages`, `bytes` | of the user agent |
//! | `m:{chid}`, `b:{chid}` | of a channel |
//! | `counted_at` | when the rows were last counted, in ms |
//! | `version` | greater after each change; a new item begins with the time |
//!
//! A store adds to the counts before it writes its row, on condition that they stay within the bounds. A delete
//! subtracts after it deleted. What fails in between, and what the TTL deletes, leaves the counts too high. A change that
//! may have been made twice, because an answer was lost, removes the item. So the rows are counted again if there is no
//! item, or if it says full and was not counted lately. Messages of channels that were
//! unregistered are deleted then, if the bound is exceeded. A count beside stores of other nodes may miss these, so that
//! the bound may be exceeded by as many messages as are stored at the same time.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure};
use state_machine::store::FullScope;
use state_machine::{Chid, Message, Span, Time, Uaid};
use storage::waiting_limits::{WaitingBound, WaitingCounts, WaitingSize, WhenFull};

use crate::attributes::{UAID, number, number_of, text};
use crate::error::{CallError, Item, applied};
use crate::message_items::{self, SORT_KEY, WAITING_KEY};
use crate::month_rows::MonthRows;
use crate::waiting_rows;

/// Time in which a refused push does not count the rows again.
const COUNTED_FOR: Span = Span::from_secs(10);

/// Attempts of one store, if other nodes change the counts at the same time.
const ATTEMPTS_MAX: u32 = 8;

/// More changes than an item can have in a millisecond.
const VERSIONS_IN_A_MS: u64 = 1000;

/// Channels whose counts one request changes: an expression has at most 4 KB.
const CHANNELS_IN_A_REQUEST: usize = 20;

enum Attempt {
    /// The message is counted in place of this.
    Counted(WaitingSize),
    Full(FullScope),
    /// Others have changed the counts.
    Contended,
}

/// Counts a message that is about to be stored. Returns what it is counted in place of, or whose bound it exceeds.
pub(crate) async fn reserve(
    rows: &MonthRows<'_>,
    message: &Message,
) -> Result<Result<WaitingSize, FullScope>, CallError> {
    for _attempt in 0..ATTEMPTS_MAX {
        let known = match add(rows, message, WaitingSize::NOTHING).await? {
            Ok(()) => return Ok(Ok(WaitingSize::NOTHING)),
            Err(known) => known,
        };
        let attempt = match &known {
            Some(item) => replace_or_refuse(rows, message, item).await?,
            None => None,
        };
        let attempt = match attempt {
            Some(attempt) => attempt,
            None => count(rows, message, known.as_ref()).await?,
        };
        match attempt {
            Attempt::Counted(replaced) => return Ok(Ok(replaced)),
            Attempt::Full(scope) => return Ok(Err(scope)),
            Attempt::Contended => {}
        }
    }
    // Messages may have given way.
    let wrote = rows.client.options.waiting.when_full == WhenFull::Replace;
    Err(CallError::contended("UpdateItem", &rows.table).after_writes(wrote))
}

/// Counts a message that replaces a row, or refuses it if the rows were counted lately.
async fn replace_or_refuse(
    rows: &MonthRows<'_>,
    message: &Message,
    known: &Item,
) -> Result<Option<Attempt>, CallError> {
    let limits = &rows.client.options.waiting;
    let replaced = stored_row(rows, message).await?;
    if replaced != WaitingSize::NOTHING && add(rows, message, replaced).await?.is_ok() {
        return Ok(Some(Attempt::Counted(replaced)));
    }
    let counted_at = Time(number_of(known, COUNTED_AT).unwrap_or(0));
    let is_recent = message.accepted_at.since(counted_at) < COUNTED_FOR;
    let counts = counts_of(known, message.chid);
    let scope = limits.exceeded_by(&counts, WaitingSize::of(message), replaced);
    let refused = scope.filter(|_| is_recent && limits.when_full == WhenFull::Refuse);
    Ok(refused.map(Attempt::Full))
}

/// Adds a message to the counts in place of what it replaces. The error is the present item, if there is one and the
/// server returns it.
async fn add(
    rows: &MonthRows<'_>,
    message: &Message,
    replaced: WaitingSize,
) -> Result<Result<(), Option<Item>>, CallError> {
    let limits = &rows.client.options.waiting;
    let added = WaitingSize::of(message);
    let [messages, bytes] = growth(added, replaced);
    let mut condition = "attribute_exists(#um)".to_owned();
    let mut request = rows
        .update_request(WAITING_KEY)
        .update_expression("ADD #um :m, #ub :b, #cm :m, #cb :b, version :one")
        .expression_attribute_names("#um", MESSAGES)
        .expression_attribute_names("#ub", BYTES)
        .expression_attribute_names("#cm", messages_in(message.chid))
        .expression_attribute_names("#cb", bytes_in(message.chid))
        .expression_attribute_values(":m", signed(messages))
        .expression_attribute_values(":b", signed(bytes))
        .expression_attribute_values(":one", signed(1))
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
    let WaitingBound { messages_max: um, bytes_max: ub } = limits.user;
    let WaitingBound { messages_max: cm, bytes_max: cb } = limits.channel;
    for (name, max, growth) in
        [("um", um, messages), ("ub", ub, bytes), ("cm", cm, messages), ("cb", cb, bytes)]
    {
        if max > 0 && growth > 0 {
            // Below zero no count fits, and no missing one either.
            let rest = i64::try_from(max).unwrap_or(i64::MAX) - growth;
            condition.push_str(&if rest < 0 {
                format!(" AND #{name} <= :{name}")
            } else {
                format!(" AND (attribute_not_exists(#{name}) OR #{name} <= :{name})")
            });
            request = request.expression_attribute_values(format!(":{name}"), signed(rest));
        }
    }
    let request = request.condition_expression(condition);
    match rows.update(request).await {
        Ok(_added) => Ok(Ok(())),
        Err(error) if error.is_condition_failed() => Ok(Err(error.into_item())),
        Err(error) => Err(error),
    }
}

/// Counts the rows and the message, and deletes what gives way to it.
async fn count(
    rows: &MonthRows<'_>,
    message: &Message,
    known: Option<&Item>,
) -> Result<Attempt, CallError> {
    let limits = &rows.client.options.waiting;
    let mut waiting = waiting_rows::read(rows, message).await?;
    let mut counts = waiting.counts(message.chid);
    let added = WaitingSize::of(message);
    if limits.exceeded_by(&counts, added, waiting.replaced).is_some() {
        waiting.delete_unregistered(rows).await?;
        counts = waiting.counts(message.chid);
    }
    let refused = match limits.exceeded_by(&counts, added, waiting.replaced) {
        None => None,
        Some(scope) if limits.when_full == WhenFull::Refuse => Some(scope),
        Some(_) => waiting.give_way(rows, message, counts).await?.err(),
    };
    let mut by_channel = waiting.by_channel();
    if refused.is_none() {
        let channel = by_channel.entry(message.chid).or_default();
        *channel = *channel - waiting.replaced + added;
    }
    let item = encode(rows.uaid, &by_channel, message.accepted_at, known);
    Ok(match (put_unchanged(rows, item, known).await?, refused) {
        (_, Some(scope)) => Attempt::Full(scope),
        (true, None) => Attempt::Counted(waiting.replaced),
        (false, None) => Attempt::Contended,
    })
}

/// Subtracts deleted messages. The counts are too high if that fails, until the rows are counted again.
pub(crate) async fn subtract(
    rows: &MonthRows<'_>,
    deleted: impl IntoIterator<Item = (Chid, WaitingSize)>,
) {
    let mut by_channel = BTreeMap::<Chid, WaitingSize>::new();
    for (chid, size) in deleted {
        let channel = by_channel.entry(chid).or_default();
        *channel = *channel + size;
    }
    let by_channel: Vec<_> = by_channel.into_iter().collect();
    for channels in by_channel.chunks(CHANNELS_IN_A_REQUEST) {
        let sums = channels.iter().map(|(chid, size)| (*chid, growth(WaitingSize::NOTHING, *size)));
        let changed = change(rows, &sums.collect::<Vec<_>>()).await;
        if let Ok(Some(item)) = changed {
            remove_empty(rows, &item).await;
        }
    }
}

/// Removes the counts of channels without messages, once there are [`CHANNELS_IN_A_REQUEST`]: an item has at most 400 KB,
/// and a change is charged for all of it.
async fn remove_empty(rows: &MonthRows<'_>, item: &Item) {
    let is_zero = |name: &str| item.get(name) == Some(&signed(0));
    let channels = item.keys().filter_map(|name| name.strip_prefix("m:"));
    let is_empty = |chid: &&str| is_zero(&format!("m:{chid}")) && is_zero(&format!("b:{chid}"));
    let empty: Vec<_> = channels.filter(is_empty).take(CHANNELS_IN_A_REQUEST).collect();
    if empty.len() < CHANNELS_IN_A_REQUEST {
        return;
    }
    let (mut removed, mut conditions) = (Vec::new(), Vec::new());
    let mut request = rows.update_request(WAITING_KEY);
    for (at, chid) in empty.iter().enumerate() {
        removed.push(format!("#m{at}, #b{at}"));
        conditions.push(format!("#m{at} = :zero AND #b{at} = :zero"));
        request = request
            .expression_attribute_names(format!("#m{at}"), format!("m:{chid}"))
            .expression_attribute_names(format!("#b{at}"), format!("b:{chid}"));
    }
    let request = request
        .update_expression(format!("REMOVE {} ADD version :one", removed.join(", ")))
        .condition_expression(conditions.join(" AND "))
        .expression_attribute_values(":zero", signed(0))
        .expression_attribute_values(":one", signed(1));
    // A later delete tries again.
    let _kept = rows.update(request).await;
}

/// Corrects the counts of a message that was counted in place of `reserved`, once `replaced` was really replaced; none
/// if the message was not stored in favour of another one.
pub(crate) async fn correct(
    rows: &MonthRows<'_>,
    message: &Message,
    reserved: WaitingSize,
    replaced: Option<WaitingSize>,
) {
    let correction = growth(reserved, replaced.unwrap_or(WaitingSize::of(message)));
    if correction != [0, 0] {
        let _too_high = change(rows, &[(message.chid, correction)]).await;
    }
}

/// Adds these numbers of messages and bytes to the counts, if there are any. Returns the item.
async fn change(
    rows: &MonthRows<'_>,
    changes: &[(Chid, [i64; 2])],
) -> Result<Option<Item>, CallError> {
    let mut expression = "ADD #um :um, #ub :ub, version :one".to_owned();
    let mut request = rows
        .update_request(WAITING_KEY)
        .expression_attribute_names("#um", MESSAGES)
        .expression_attribute_names("#ub", BYTES)
        .condition_expression("attribute_exists(#um)");
    let [mut messages, mut bytes] = [0, 0];
    for (at, (chid, [of_messages, of_bytes])) in changes.iter().enumerate() {
        messages += of_messages;
        bytes += of_bytes;
        expression.push_str(&format!(", #m{at} :m{at}, #b{at} :b{at}"));
        request = request
            .expression_attribute_names(format!("#m{at}"), messages_in(*chid))
            .expression_attribute_names(format!("#b{at}"), bytes_in(*chid))
            .expression_attribute_values(format!(":m{at}"), signed(*of_messages))
            .expression_attribute_values(format!(":b{at}"), signed(*of_bytes));
    }
    let request = request
        .update_expression(expression)
        .expression_attribute_values(":um", signed(messages))
        .expression_attribute_values(":ub", signed(bytes))
        .expression_attribute_values(":one", signed(1))
        .return_values(ReturnValue::AllNew);
    let changed = rows.client.call_tracked("UpdateItem", &rows.table, request.send()).await;
    let is_unclear = match &changed {
        Ok((_, is_unclear)) => *is_unclear,
        Err(error) => error.is_indeterminate(),
    };
    if is_unclear && messages.min(bytes) < 0 {
        // Made twice, it would leave the counts too low. The next store counts the rows.
        return rows.remove(WAITING_KEY).await.map(|()| None);
    }
    match changed {
        Ok((changed, _)) => Ok(changed.attributes),
        Err(error) if error.is_condition_failed() => Ok(None),
        Err(error) => Err(error),
    }
}

/// What the row of this message's topic, or of the message itself, occupies.
async fn stored_row(rows: &MonthRows<'_>, message: &Message) -> Result<WaitingSize, CallError> {
    let item = rows.get(&message_items::sort_key_of_message(message)).await?;
    Ok(item.as_ref().map_or(WaitingSize::NOTHING, size_of))
}

/// What a row occupies; nothing if it cannot be decoded, as it is not counted.
pub(crate) fn size_of(item: &Item) -> WaitingSize {
    message_items::decode(item).map_or(WaitingSize::NOTHING, |message| WaitingSize::of(&message))
}

/// Writes the counts, unless another request has changed them since `known` was read. Returns whether it did.
async fn put_unchanged(
    rows: &MonthRows<'_>,
    item: Item,
    known: Option<&Item>,
) -> Result<bool, CallError> {
    let request = rows.client.sdk.put_item().table_name(&rows.table).set_item(Some(item));
    let request = match known.map(|known| known.get(VERSION)) {
        None => request.condition_expression("attribute_not_exists(uaid)"),
        Some(None) => request.condition_expression("attribute_not_exists(version)"),
        Some(Some(version)) => request
            .condition_expression("version = :version")
            .expression_attribute_values(":version", version.clone()),
    };
    applied(rows.client.call("PutItem", &rows.table, request.send()).await)
}

/// The item that replaces `known`.
fn encode(
    uaid: Uaid,
    by_channel: &BTreeMap<Chid, WaitingSize>,
    counted_at: Time,
    known: Option<&Item>,
) -> Item {
    let before = known.and_then(|known| number_of(known, VERSION)).unwrap_or(0);
    // In place of a removed item, no version may be one that a reader of that one knows.
    let version = counted_at.0.saturating_mul(VERSIONS_IN_A_MS).max(before + 1);
    let user = by_channel.values().fold(WaitingSize::NOTHING, |sum, channel| sum + *channel);
    let mut item = Item::from([
        (UAID.to_owned(), text(uaid.to_string())),
        (SORT_KEY.to_owned(), text(WAITING_KEY)),
        (MESSAGES.to_owned(), number(user.messages)),
        (BYTES.to_owned(), number(user.bytes)),
        (COUNTED_AT.to_owned(), number(counted_at.0)),
        (VERSION.to_owned(), number(version)),
    ]);
    for (chid, channel) in
        by_channel.iter().filter(|(_, channel)| **channel != WaitingSize::NOTHING)
    {
        item.insert(messages_in(*chid), number(channel.messages));
        item.insert(bytes_in(*chid), number(channel.bytes));
    }
    item
}

fn counts_of(item: &Item, chid: Chid) -> WaitingCounts {
    let waiting = |messages: &str, bytes: &str| WaitingSize {
        messages: number_of(item, messages).unwrap_or(0),
        bytes: number_of(item, bytes).unwrap_or(0),
    };
    WaitingCounts {
        user: waiting(MESSAGES, BYTES),
        channel: waiting(&messages_in(chid), &bytes_in(chid)),
    }
}

/// The difference in messages and bytes.
fn growth(added: WaitingSize, replaced: WaitingSize) -> [i64; 2] {
    let difference = |added: u64, replaced: u64| added as i64 - replaced as i64;
    [difference(added.messages, replaced.messages), difference(added.bytes, replaced.bytes)]
}

fn signed(number: i64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

fn messages_in(chid: Chid) -> String {
    format!("m:{chid}")
}

fn bytes_in(chid: Chid) -> String {
    format!("b:{chid}")
}

const MESSAGES: &str = "messages";
const BYTES: &str = "bytes";
const COUNTED_AT: &str = "counted_at";
const VERSION: &str = "version";
