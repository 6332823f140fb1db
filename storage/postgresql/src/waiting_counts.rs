//! How many messages wait for each user agent and in each channel, and which give way to a new one.

use state_machine::store::FullScope;
use state_machine::{Message, MessageId, Month, Time, Topic, Uaid};
use storage::maintenance::WaitingPage;
use storage::sql::rows::SqlRow;
use storage::store::Cursor;
use storage::waiting_limits::{WaitingCounts, WaitingMessage, WaitingSize, WhenFull};

use crate::client::{PostgresClient, Transaction};
use crate::error::{Result, if_month};
use crate::sql::{Row, params, position};

/// User agents in a page.
const USERS_MAX: u64 = 1000;

/// Deletes what has expired or has no channel any more, and what gives way. Returns how many gave way, or whose bound the
/// message exceeds even then.
pub(crate) async fn make_room(
    transaction: &Transaction<'_>,
    uaid: Uaid,
    month: Month,
    message: &Message,
    replaced: WaitingSize,
) -> Result<Result<u64, FullScope>> {
    let limits = &transaction.client.options.waiting;
    let (counts, expires_at) = read(transaction, uaid, month, message).await?;
    let size = WaitingSize::of(message);
    if limits.exceeded_by(&counts, size, replaced).is_none() {
        return Ok(Ok(0));
    }
    // The endpoint's time of the push.
    let now = message.accepted_at;
    if expires_at <= now {
        transaction.run(Some(month), DELETE_EXPIRED, params![uaid, now]).await?;
        transaction.run(Some(month), SET_EXPIRY, params![uaid]).await?;
    }
    transaction.run(Some(month), DELETE_UNREGISTERED, params![uaid]).await?;
    let (counts, _) = read(transaction, uaid, month, message).await?;
    match limits.exceeded_by(&counts, size, replaced) {
        Some(_) if limits.when_full == WhenFull::Replace => {}
        exceeded => return Ok(exceeded.map_or(Ok(0), Err)),
    }
    let topic = message.topic.as_ref().map(Topic::as_str);
    let rows = transaction.run(Some(month), LIST, params![uaid, message.chid, topic]).await?;
    let rows = rows.iter().map(waiting_row).collect::<Result<_, _>>()?;
    let deleted = match limits.give_way(rows, counts, message, replaced) {
        Ok(deleted) => deleted,
        Err(exceeded) => return Ok(Err(exceeded)),
    };
    let gave_way = deleted.len() as u64;
    transaction.run(Some(month), DELETE, params![uaid, deleted]).await?;
    Ok(Ok(gave_way))
}

fn waiting_row(row: &Row) -> Result<WaitingMessage<MessageId>> {
    let (id, chid) = (row.message_id(0)?, row.chid(1)?);
    Ok(WaitingMessage { key: id, id, chid, urgency: row.urgency(2)?, bytes: row.number(3)? })
}

/// What waits, and a time before which no message of the user agent expires.
async fn read(
    transaction: &Transaction<'_>,
    uaid: Uaid,
    month: Month,
    message: &Message,
) -> Result<(WaitingCounts, Time)> {
    let rows = transaction.run(Some(month), READ, params![uaid, message.chid]).await?;
    let Some(row) = rows.first() else { return Ok((WaitingCounts::default(), Time(u64::MAX))) };
    let user = WaitingSize { messages: row.number(0)?, bytes: row.number(1)? };
    let channel = WaitingSize { messages: row.number(2)?, bytes: row.number(3)? };
    let counts = WaitingCounts { user, channel };
    Ok((counts, Time(row.number(4)?)))
}

/// Counts what waits for a page of user agents.
pub(crate) async fn page(
    client: &PostgresClient,
    month: Month,
    after: Option<Cursor>,
) -> Result<WaitingPage> {
    let params =
        params![position(after.as_ref(), |after| Uaid::parse(after.as_str()).ok())?, USERS_MAX];
    let rows = if_month(client.read(Some(month), PAGE, params).await)?;
    let mut page = WaitingPage::default();
    for row in &rows {
        page.messages += row.number(1)?;
        page.bytes += row.number(2)?;
    }
    if let Some(last) = rows.last().filter(|_| rows.len() as u64 == USERS_MAX) {
        page.next = Some(Cursor::new(last.uaid(0)?.to_string()));
    }
    Ok(page)
}

const READ: &str = "
    SELECT a.messages, a.bytes, coalesce(c.messages, 0), coalesce(c.bytes, 0), a.expires_at
    FROM {s}.agents_{m} a LEFT JOIN {s}.channels_{m} c ON c.uaid = a.uaid AND c.chid = $2
    WHERE a.uaid = $1";

const DELETE_EXPIRED: &str = "DELETE FROM {s}.messages_{m} WHERE uaid = $1 AND expires_at <= $2";

const SET_EXPIRY: &str = "
    UPDATE {s}.agents_{m} SET expires_at = coalesce(
        (SELECT min(expires_at) FROM {s}.messages_{m} WHERE uaid = $1), 9223372036854775807)
    WHERE uaid = $1";

/// The messages of channels that were unregistered since. An agent deletes them when it reads them.
const DELETE_UNREGISTERED: &str = "
    DELETE FROM {s}.messages_{m} d WHERE uaid = $1 AND NOT EXISTS (
        SELECT 1 FROM {s}.channels_{m} c WHERE c.uaid = d.uaid AND c.chid = d.chid)";

/// All but the message of the topic.
const LIST: &str = "
    SELECT id, chid, urgency, size::bigint FROM {s}.messages_{m}
    WHERE uaid = $1 AND NOT (chid = $2 AND topic IS NOT NULL AND topic IS NOT DISTINCT FROM $3)";

pub(crate) const DELETE: &str = "DELETE FROM {s}.messages_{m} WHERE uaid = $1 AND id = ANY($2)";

const PAGE: &str = "
    SELECT uaid, messages, bytes FROM {s}.agents_{m}
    WHERE ($1::uuid IS NULL OR uaid > $1) AND messages > 0 ORDER BY uaid LIMIT $2";
