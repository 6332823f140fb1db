//! The messages of one month.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use state_machine::{
    Chid, Encoding, Message, MessageId, MessageKey, Month, Payload, ReceiptRequest, Span, Time,
    Topic, Uaid,
};
use storage::networked::{MessageCalls, MonthCalls};
use storage::receipts::{Deletion, ExpectedReceipt};
use storage::rules::receipts as rules;
use storage::store::{Cursor, Page, PageLimit, SettledMessages, Stored};
use storage::waiting_limits::{WaitingLimits, WaitingSize};
use tokio_postgres::Row;

use crate::client::{PostgresClient, Transaction, transact};
use crate::error::{SqlError, if_month};
use crate::feed_rows::Feeds;
use crate::sql::{Columns, Param, count, params, position, urgency_column};
use crate::{schema, waiting_counts};

/// Rows that one fetch reads: bounds its cost.
const FETCHED_MAX: usize = 1000;

/// Expired messages that one write deletes: bounds how long the others of its transaction wait.
const EXPIRED_MAX: u64 = 200;

/// Messages of one page of a move.
const MOVED_MAX: u64 = 100;

impl MessageCalls for PostgresClient {
    /// A message within its bounds that replaces none with a receipt costs one statement.
    async fn store(&self, uaid: Uaid, month: Month, message: Message) -> Result<Stored, SqlError> {
        let mut params = row_params(uaid, &message);
        let WaitingLimits { user, channel, .. } = self.options.waiting;
        params.extend(params![
            user.messages_max,
            user.bytes_max,
            channel.messages_max,
            channel.bytes_max
        ]);
        let rows = self.write_month(uaid, month, STORE, params).await?;
        let row = rows.first().ok_or_else(|| SqlError::corrupt("a message has no answer"))?;
        match row.column::<i32>(0)? {
            0 => Ok(Stored::Done),
            1 => Ok(Stored::NoSuchChannel),
            2 => Ok(Stored::Outranked(row.message_id(1)?)),
            _ => {
                let mut gave_way = 0;
                let stored = transact!(self, |transaction| {
                    store_with_care(&transaction, uaid, month, &message, &mut gave_way).await
                })?;
                if stored == Stored::Done {
                    self.gave_way.fetch_add(gave_way, Ordering::Relaxed);
                }
                Ok(stored)
            }
        }
    }

    async fn fetch(
        &self,
        uaid: Uaid,
        month: Month,
        after: Option<Cursor>,
        limit: PageLimit,
        now: Time,
    ) -> Result<Page, SqlError> {
        let most = limit.rows.clamp(1, FETCHED_MAX);
        let after = position(after.as_ref(), |after| MessageId::parse(after.as_str()).ok())?;
        let params = params![uaid, after, now, most as u64 + 1];
        let rows = if_month(self.read_month(month, FETCH, params).await)?;
        let (mut page, mut bytes, mut last) = (Page::default(), 0, None);
        for (at, row) in rows.iter().enumerate() {
            if at >= most || limit.is_reached(page.messages.len(), bytes) {
                page.next = last.map(|last: MessageId| Cursor::new(last.to_string()));
                break;
            }
            let message = decode(row)?;
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
    ) -> Result<usize, SqlError> {
        let (ids, chids) = columns(&messages);
        let mut deleted = 0;
        for month in months {
            let params = params![uaid, ids.clone(), chids.clone()];
            let rows = if_month(self.write_month(uaid, month, DELETE, params).await)?;
            deleted += count(&rows)?;
        }
        Ok(deleted as usize)
    }

    async fn settle(
        &self,
        uaid: Uaid,
        months: Vec<Month>,
        deletions: Vec<Deletion>,
    ) -> Result<SettledMessages, SqlError> {
        transact!(self, |transaction| settle(&transaction, uaid, &months, &deletions).await)
    }

    async fn record_offers(
        &self,
        uaid: Uaid,
        month: Month,
        messages: Vec<MessageKey>,
    ) -> Result<(), SqlError> {
        let (ids, chids) = columns(&messages);
        let params = params![uaid, ids, chids];
        if_month(self.write_month(uaid, month, RECORD_OFFERS, params).await).map(drop)
    }

    /// In pages of one transaction each.
    async fn move_messages(&self, uaid: Uaid, from: Month, to: Month) -> Result<(), SqlError> {
        let mut moved = if from == to { 0 } else { MOVED_MAX };
        while moved == MOVED_MAX {
            let page = transact!(self, |transaction| move_page(&transaction, uaid, from, to).await);
            moved = page?;
        }
        Ok(())
    }
}

/// Stores a message that exceeds a bound, or replaces one with a receipt. Sets how many gave way, unless the message is
/// there: an attempt whose commit was not answered has stored it and set that.
async fn store_with_care(
    transaction: &Transaction<'_>,
    uaid: Uaid,
    month: Month,
    message: &Message,
    gave_way: &mut u64,
) -> Result<Stored, SqlError> {
    let Some(mut replaced) = lock_for_store(transaction, uaid, month, message).await? else {
        return Ok(Stored::NoSuchChannel);
    };
    match replaced.take_if(|there| there.id >= message.id) {
        Some(there) if there.id > message.id => return Ok(Stored::Outranked(there.id)),
        Some(_) => return Ok(Stored::Done),
        None => {}
    }
    let found = transaction.run_month(month, FIND, params![uaid, message.id]).await?;
    if !found.is_empty() {
        return Ok(Stored::Done);
    }
    let size = replaced.as_ref().map_or(WaitingSize::NOTHING, |there| there.size);
    *gave_way = match waiting_counts::make_room(transaction, uaid, month, message, size).await? {
        Ok(gave_way) => gave_way,
        Err(scope) => return Ok(Stored::Full(scope)),
    };
    if let Some(there) = replaced {
        transaction.run_month(month, DELETE_ONE, params![uaid, there.id]).await?;
        if let Some(expected) = there.expected {
            rules::cancel(&Feeds::writing(transaction), &expected).await?;
        }
    }
    transaction.run_month(month, INSERT, insert_params(uaid, message)).await?;
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
) -> Result<Option<Option<OfTopic>>, SqlError> {
    lock(transaction, uaid, month).await?;
    let channel = transaction.run_month(month, CHANNEL, params![uaid, message.chid]).await?;
    if channel.is_empty() {
        return Ok(None);
    }
    let Some(topic) = &message.topic else { return Ok(Some(None)) };
    let params = params![uaid, message.chid, topic.as_str()];
    let rows = transaction.run_month(month, OF_TOPIC, params).await?;
    let decode = |row: &Row| {
        let size =
            WaitingSize { messages: 1, bytes: u64::from(row.column::<i32>(1)?.unsigned_abs()) };
        Ok(OfTopic { id: row.message_id(0)?, size, expected: expected(2, row)? })
    };
    rows.first().map(decode).transpose().map(Some)
}

/// Locks the rows of an agent in a month, until the transaction ends.
pub(crate) async fn lock(
    transaction: &Transaction<'_>,
    uaid: Uaid,
    month: Month,
) -> Result<(), SqlError> {
    transaction.run_month(month, LOCK, params![uaid]).await.map(drop)
}

/// The columns of a message but its offers.
fn row_params(uaid: Uaid, message: &Message) -> Vec<Param> {
    let (encoding, encryption, crypto_key) = match message.payload.as_ref().map(|it| &it.encoding) {
        // A SimplePush version has a table of its own.
        None | Some(Encoding::Plain) => (None, None, None),
        Some(Encoding::Aes128Gcm) => (Some(AES128GCM), None, None),
        Some(Encoding::AesGcm { encryption, crypto_key }) => {
            (Some(AESGCM), Some(&**encryption), Some(&**crypto_key))
        }
    };
    params![
        uaid,
        message.id,
        message.kept_until(),
        message.chid,
        message.topic.as_ref().map(Topic::as_str),
        urgency_column(message.urgency),
        message.accepted_at,
        message.ttl.0,
        encoding,
        encryption,
        crypto_key,
        message.payload.as_ref().map(|payload| &*payload.data),
        message.receipt.as_ref().map(|receipt| receipt.to_column()),
        i32::try_from(WaitingSize::of(message).bytes).unwrap_or(i32::MAX),
    ]
}

/// The parameters of [`INSERT`].
pub(crate) fn insert_params(uaid: Uaid, message: &Message) -> Vec<Param> {
    let mut params = row_params(uaid, message);
    params.push(Param::from(i32::from(message.offers)));
    params
}

fn columns<'a>(messages: impl IntoIterator<Item = &'a MessageKey>) -> (Vec<MessageId>, Vec<Chid>) {
    messages.into_iter().map(|message| (message.id, message.chid)).unzip()
}

async fn settle(
    transaction: &Transaction<'_>,
    uaid: Uaid,
    months: &[Month],
    deletions: &[Deletion],
) -> Result<SettledMessages, SqlError> {
    let mut settled = SettledMessages::default();
    let mut receipts = Vec::new();
    for month in months {
        if !schema::is_there(transaction, *month).await? {
            continue;
        }
        lock(transaction, uaid, *month).await?;
        let (ids, chids) = columns(deletions.iter().map(|(key, _settlement)| key));
        for row in &transaction.run_month(*month, SETTLE, params![uaid, ids, chids]).await? {
            settled.deleted += 1;
            let id = row.message_id(2)?;
            let settlement = deletions.iter().find(|(key, _)| key.id == id).and_then(|(_, of)| *of);
            receipts.extend(expected(0, row)?.zip(settlement));
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
) -> Result<u64, SqlError> {
    if !schema::is_there(transaction, from).await? {
        return Ok(0);
    }
    for month in [from.min(to), from.max(to)] {
        lock(transaction, uaid, month).await?;
    }
    let statement = MOVE.replace("{from}", &from.to_string()).replace("{m}", &to.to_string());
    let rows = transaction.run(&statement, params![uaid, MOVED_MAX]).await?;
    for row in &rows {
        // A message of its topic in the new month stays, whatever the ids.
        if row.column::<bool>(2)?
            && let Some(expected) = expected(0, row)?
        {
            rules::cancel(&Feeds::writing(transaction), &expected).await?;
        }
    }
    Ok(rows.len() as u64)
}

/// Deletes messages that expired before `now`, a page at a time.
pub(crate) async fn delete_expired(client: &PostgresClient, now: Time) -> Result<u64, SqlError> {
    let mut deleted = 0;
    for month in client.months().await? {
        loop {
            let params = params![now, EXPIRED_MAX];
            let rows = client.write_month(Uaid([0; 16]), month, DELETE_EXPIRED, params).await;
            let page = count(&if_month(rows)?)?;
            deleted += page;
            if page < EXPIRED_MAX {
                break;
            }
        }
    }
    Ok(deleted)
}

/// Reads the columns of [`FETCH`].
pub(crate) fn decode(row: &Row) -> Result<Message, SqlError> {
    let receipt = receipt(12, row)?.map(Box::new);
    Ok(Message {
        id: row.message_id(0)?,
        chid: row.chid(2)?,
        topic: row.parsed_or_none(3, Topic::parse)?,
        urgency: row.urgency(4)?,
        accepted_at: Time(row.number(5)?),
        ttl: Span(row.number(6)?),
        offers: u8::try_from(row.column::<i32>(11)?).unwrap_or(u8::MAX),
        receipt,
        payload: payload(row)?,
    })
}

fn receipt(at: usize, row: &Row) -> Result<Option<ReceiptRequest>, SqlError> {
    let Some(text) = row.column::<Option<&str>>(at)? else { return Ok(None) };
    let request = ReceiptRequest::from_column(text);
    request.map(Some).ok_or_else(|| SqlError::corrupt("a message has no receipt"))
}

/// The receipt that a row names in this column, and its deadline in the next one.
fn expected(at: usize, row: &Row) -> Result<Option<ExpectedReceipt>, SqlError> {
    let deadline = Time(row.number(at + 1)?);
    Ok(receipt(at, row)?.map(|request| ExpectedReceipt { request, deadline }))
}

fn payload(row: &Row) -> Result<Option<Payload>, SqlError> {
    let text = |at| row.column::<&str>(at).map(Box::<str>::from);
    let encoding = match row.column::<Option<i16>>(7)? {
        None => return Ok(None),
        Some(AES128GCM) => Encoding::Aes128Gcm,
        Some(AESGCM) => Encoding::AesGcm { encryption: text(8)?, crypto_key: text(9)? },
        Some(_) => return Err(SqlError::corrupt("an unknown encoding")),
    };
    let data = Bytes::copy_from_slice(row.column(10)?);
    Ok(Some(Payload { data, encoding }))
}

const AES128GCM: i16 = 1;
const AESGCM: i16 = 2;

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
