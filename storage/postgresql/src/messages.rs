//! The messages of one month.

use state_machine::{Chid, Message, MessageId, MessageKey, Month, Time, Uaid};
use storage::networked::{MessageCalls, MonthCalls};
use storage::receipts::{Deletion, ExpectedReceipt};
use storage::rules::receipts as rules;
use storage::sql::rows::SqlRow;
use storage::sql::values::{self, Value};
use storage::store::{Cursor, Page, PageLimit, SettledMessages, Stored};
use storage::waiting_limits::{WaitingLimits, WaitingSize};

use crate::client::{NO_AGENT, PostgresClient, Transaction, transact};
use crate::error::{Result, SqlError, if_month};
use crate::feed_rows::Feeds;
use crate::sql::{Row, count, params, position};
use crate::{schema, waiting_counts};

/// Rows that one fetch reads: bounds its cost.
const FETCHED_MAX: usize = 1000;

/// Expired messages that one write deletes: bounds how long the others of its transaction wait.
const EXPIRED_MAX: u64 = 200;

/// Messages of one page of a move.
const MOVED_MAX: u64 = 100;

impl MessageCalls for PostgresClient {
    /// A message within its bounds that replaces none with a receipt costs one statement.
    async fn store(&self, uaid: Uaid, month: Month, message: Message) -> Result<Stored> {
        let WaitingLimits { user, channel, .. } = self.options.waiting;
        let mut values = row_values(uaid, &message);
        for bound in [user, channel] {
            values.extend([bound.messages_max, bound.bytes_max].map(Value::from));
        }
        let written = self.write(uaid, Some(month), STORE, values).await?;
        let row =
            written.rows.first().ok_or_else(|| SqlError::corrupt("a message has no answer"))?;
        match row.column::<i32>(0)? {
            0 => Ok(Stored::Done),
            1 => Ok(Stored::NoSuchChannel),
            2 => Ok(Stored::Outranked(row.message_id(1)?)),
            _ => transact!(self, |transaction| {
                store_with_care(&transaction, uaid, month, &message).await
            }),
        }
    }

    async fn fetch(
        &self,
        uaid: Uaid,
        month: Month,
        after: Option<Cursor>,
        limit: PageLimit,
        now: Time,
    ) -> Result<Page> {
        let most = limit.rows.clamp(1, FETCHED_MAX);
        let after = position(after.as_ref(), |after| MessageId::parse(after.as_str()).ok())?;
        let params = params![uaid, after, now, most as u64 + 1];
        let rows = if_month(self.read(Some(month), FETCH, params).await)?;
        let (mut page, mut bytes, mut last) = (Page::default(), 0, None);
        for (at, row) in rows.iter().enumerate() {
            if at >= most || limit.is_reached(page.messages.len(), bytes) {
                page.next = last.map(|last: MessageId| Cursor::new(last.to_string()));
                break;
            }
            let message = row.message(0)?;
            last = Some(message.id);
            // The row of a message with a receipt is kept for a while after its TTL.
            if now < message.expires_at() {
                bytes += message.payload.as_ref().map_or(0, |payload| payload.data.len());
                page.messages.push(message);
            }
        }
        Ok(page)
    }

    async fn delete(
        &self,
        uaid: Uaid,
        months: Vec<Month>,
        messages: Vec<MessageKey>,
    ) -> Result<usize> {
        let (ids, chids) = columns(&messages);
        let mut deleted = 0;
        for month in months {
            let params = params![uaid, ids.clone(), chids.clone()];
            let written = if_month(self.write(uaid, Some(month), DELETE, params).await)?;
            deleted += count(&written.rows)?;
        }
        Ok(deleted as usize)
    }

    async fn settle(
        &self,
        uaid: Uaid,
        months: Vec<Month>,
        deletions: Vec<Deletion>,
    ) -> Result<SettledMessages> {
        transact!(self, |transaction| settle(&transaction, uaid, &months, &deletions).await)
    }

    async fn record_offers(
        &self,
        uaid: Uaid,
        month: Month,
        messages: Vec<MessageKey>,
    ) -> Result<()> {
        let (ids, chids) = columns(&messages);
        let params = params![uaid, ids, chids];
        if_month(self.write(uaid, Some(month), RECORD_OFFERS, params).await).map(drop)
    }

    /// In pages of one transaction each.
    async fn move_messages(&self, uaid: Uaid, from: Month, to: Month) -> Result<()> {
        let mut moved = if from == to { 0 } else { MOVED_MAX };
        while moved == MOVED_MAX {
            let page = transact!(self, |transaction| move_page(&transaction, uaid, from, to).await);
            moved = page?;
        }
        Ok(())
    }
}

/// Stores a message that exceeds a bound, or replaces one with a receipt.
async fn store_with_care(
    transaction: &Transaction<'_>,
    uaid: Uaid,
    month: Month,
    message: &Message,
) -> Result<Stored> {
    let Some(mut replaced) = lock_for_store(transaction, uaid, month, message).await? else {
        return Ok(Stored::NoSuchChannel);
    };
    match replaced.take_if(|there| there.id >= message.id) {
        Some(there) if there.id > message.id => return Ok(Stored::Outranked(there.id)),
        Some(_) => return Ok(Stored::Done),
        None => {}
    }
    let found = transaction.run(Some(month), FIND, params![uaid, message.id]).await?;
    if !found.is_empty() {
        return Ok(Stored::Done);
    }
    let size = replaced.as_ref().map_or(WaitingSize::NOTHING, |there| there.size);
    let room = waiting_counts::make_room(transaction, uaid, month, message, size).await?;
    if let Err(scope) = room {
        return Ok(Stored::Full(scope));
    }
    if let Some(there) = replaced {
        transaction.run(Some(month), DELETE_ONE, params![uaid, there.id]).await?;
        if let Some(expected) = there.expected {
            rules::cancel(&Feeds::writing(transaction), &expected).await?;
        }
    }
    transaction.run(Some(month), INSERT, insert_values(uaid, message)).await?;
    Ok(Stored::Done)
}

/// A message of the same topic that waits.
struct OfTopic {
    id: MessageId,
    size: WaitingSize,
    expected: Option<ExpectedReceipt>,
}

/// Locks an agent's rows, and reads the message of the same topic. None if the channel is not registered.
async fn lock_for_store(
    transaction: &Transaction<'_>,
    uaid: Uaid,
    month: Month,
    message: &Message,
) -> Result<Option<Option<OfTopic>>> {
    lock(transaction, uaid, month).await?;
    let channel = transaction.run(Some(month), CHANNEL, params![uaid, message.chid]).await?;
    if channel.is_empty() {
        return Ok(None);
    }
    let Some(topic) = &message.topic else { return Ok(Some(None)) };
    let params = params![uaid, message.chid, topic.as_str()];
    let rows = transaction.run(Some(month), OF_TOPIC, params).await?;
    let decode = |row: &Row| {
        let size = WaitingSize { messages: 1, bytes: row.number(1)? };
        Ok(OfTopic { id: row.message_id(0)?, size, expected: row.receipt_of_message(2)? })
    };
    rows.first().map(decode).transpose().map(Some)
}

/// Locks the rows of an agent in a month, until the transaction ends.
pub(crate) async fn lock(transaction: &Transaction<'_>, uaid: Uaid, month: Month) -> Result<()> {
    transaction.run(Some(month), LOCK, params![uaid]).await.map(drop)
}

/// The columns of a message but its offers.
fn row_values(uaid: Uaid, message: &Message) -> Vec<Value<'_>> {
    let size = i32::try_from(WaitingSize::of(message).bytes).unwrap_or(i32::MAX);
    values::message(uaid, message).into_iter().chain([Value::Medium(size)]).collect()
}

/// The values of [`INSERT`].
pub(crate) fn insert_values(uaid: Uaid, message: &Message) -> Vec<Value<'_>> {
    let offers = Value::Medium(message.offers.into());
    row_values(uaid, message).into_iter().chain([offers]).collect()
}

fn columns<'a>(messages: impl IntoIterator<Item = &'a MessageKey>) -> (Vec<MessageId>, Vec<Chid>) {
    messages.into_iter().map(|message| (message.id, message.chid)).unzip()
}

async fn settle(
    transaction: &Transaction<'_>,
    uaid: Uaid,
    months: &[Month],
    deletions: &[Deletion],
) -> Result<SettledMessages> {
    let mut settled = SettledMessages::default();
    let mut receipts = Vec::new();
    for month in months {
        if !schema::is_there(transaction, *month).await? {
            continue;
        }
        lock(transaction, uaid, *month).await?;
        let (ids, chids) = columns(deletions.iter().map(|(key, _settlement)| key));
        for row in &transaction.run(Some(*month), SETTLE, params![uaid, ids, chids]).await? {
            settled.deleted += 1;
            let id = row.message_id(2)?;
            let settlement = deletions.iter().find(|(key, _)| key.id == id).and_then(|(_, of)| *of);
            receipts.extend(row.receipt_of_message(0)?.zip(settlement));
        }
    }
    // The locks of feeds are taken in one order.
    receipts
        .sort_by(|(one, _), (other, _)| one.request.subscription.cmp(&other.request.subscription));
    for (expected, settlement) in receipts {
        let subscription = &expected.request.subscription;
        let is_new = rules::settle(&Feeds::writing(transaction), &expected, settlement).await?;
        if is_new && !settled.subscriptions.contains(subscription) {
            settled.subscriptions.push(subscription.clone());
        }
    }
    Ok(settled)
}

/// Returns the number of rows of the old month that are gone.
async fn move_page(
    transaction: &Transaction<'_>,
    uaid: Uaid,
    from: Month,
    to: Month,
) -> Result<u64> {
    if !schema::is_there(transaction, from).await? {
        return Ok(0);
    }
    for month in [from.min(to), from.max(to)] {
        lock(transaction, uaid, month).await?;
    }
    let statement = MOVE.replace("{from}", &from.to_string()).replace("{m}", &to.to_string());
    let rows = transaction.run(None, &statement, params![uaid, MOVED_MAX]).await?;
    for row in &rows {
        // A message of its topic in the new month stays, whatever the ids.
        if row.column::<bool>(2)?
            && let Some(expected) = row.receipt_of_message(0)?
        {
            rules::cancel(&Feeds::writing(transaction), &expected).await?;
        }
    }
    Ok(rows.len() as u64)
}

/// Deletes messages that expired before `now`, a page at a time.
pub(crate) async fn delete_expired(client: &PostgresClient, now: Time) -> Result<u64> {
    let mut deleted = 0;
    for month in client.months().await? {
        loop {
            let params = params![now, EXPIRED_MAX];
            let written = client.write(NO_AGENT, Some(month), DELETE_EXPIRED, params).await;
            let page = count(&if_month(written)?.rows)?;
            deleted += page;
            if page < EXPIRED_MAX {
                break;
            }
        }
    }
    Ok(deleted)
}

const LOCK: &str = "SELECT 1 FROM {s}.agents_{m} WHERE uaid = $1 FOR UPDATE";

const CHANNEL: &str = "SELECT 1 FROM {s}.channels_{m} WHERE uaid = $1 AND chid = $2";

const FIND: &str = "SELECT 1 FROM {s}.messages_{m} WHERE uaid = $1 AND id = $2";

const OF_TOPIC: &str = "
    SELECT id, size, receipt, expires_at FROM {s}.messages_{m}
    WHERE uaid = $1 AND chid = $2 AND topic = $3";

const DELETE_ONE: &str = "DELETE FROM {s}.messages_{m} WHERE uaid = $1 AND id = $2";

const STORE: &str = "
    SELECT code, other
    FROM {s}.store_{m}($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)";

/// Whether or not the channel is registered.
pub(crate) const INSERT: &str = "
    INSERT INTO {s}.messages_{m}
        (uaid, id, expires_at, chid, topic, urgency, accepted_at, ttl,
         encoding, encryption, crypto_key, data, receipt, size, offers)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
    ON CONFLICT DO NOTHING";

/// The second parameter is null for the first page.
const FETCH: &str = "
    SELECT id, expires_at, chid, topic, urgency, accepted_at, ttl,
        encoding, encryption, crypto_key, data, offers, receipt
    FROM {s}.messages_{m}
    WHERE uaid = $1 AND ($2::uuid IS NULL OR id > $2) AND expires_at > $3 ORDER BY id LIMIT $4";

const DELETE: &str = "SELECT {s}.delete_{m}($1, $2, $3)";

const SETTLE: &str = "
    DELETE FROM {s}.messages_{m} d USING unnest($2::uuid[], $3::uuid[]) AS gone(id, chid)
    WHERE d.uaid = $1 AND d.id = gone.id AND d.chid = gone.chid
    RETURNING d.receipt, d.expires_at, d.id";

const RECORD_OFFERS: &str = "
    UPDATE {s}.messages_{m} o SET offers = o.offers + 1 FROM unnest($2::uuid[], $3::uuid[]) AS those(id, chid)
    WHERE o.uaid = $1 AND o.id = those.id AND o.chid = those.chid";

/// The third column is whether another message of the topic waits in the new month.
const MOVE: &str = "
    WITH page AS (
        DELETE FROM {s}.messages_{from} WHERE uaid = $1 AND id IN (
            SELECT id FROM {s}.messages_{from} WHERE uaid = $1 ORDER BY id LIMIT $2)
        RETURNING *),
    moved AS (
        INSERT INTO {s}.messages_{m} SELECT p.* FROM page p
        WHERE EXISTS (SELECT 1 FROM {s}.channels_{m} c WHERE c.uaid = p.uaid AND c.chid = p.chid)
        ON CONFLICT DO NOTHING)
    SELECT receipt, expires_at, EXISTS (
        SELECT 1 FROM {s}.messages_{m} o
        WHERE o.uaid = page.uaid AND o.chid = page.chid AND o.topic = page.topic AND o.id <> page.id)
    FROM page";

const DELETE_EXPIRED: &str = "
    WITH page AS (
        SELECT uaid, id FROM {s}.messages_{m} WHERE expires_at <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED),
    gone AS (DELETE FROM {s}.messages_{m} d USING page p WHERE d.uaid = p.uaid AND d.id = p.id RETURNING 1)
    SELECT count(*) FROM gone";
