//! The messages of one month.

use std::sync::atomic::Ordering;

use state_machine::{Chid, Message, MessageId, MessageKey, Month, Time, Topic, Uaid};
use storage::engine_calls;
use storage::networked::{MessageCalls, MonthCalls};
use storage::receipts::Deletion;
use storage::rules::receipts as rules;
use storage::sql::rows::SqlRow;
use storage::sql::values::{self, Value};
use storage::store::{Cursor, Page, PageLimit, SettledMessages, Stored};
use storage::waiting_limits::{WaitingLimits, WaitingSize};

use crate::client::{NO_AGENT, PostgresClient, Transaction, transact};
use crate::error::{Result, SqlError, if_month};
use crate::feed_rows::Feeds;
use crate::sql::{Query, Row, count, params, position};
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
        let query = store_query(self, uaid, month, &message, &self.options.waiting);
        let rows = match self.write_query(uaid, query).await {
            Err(error) if error.is_of_no_month() => return Err(schema::missing(self, month).await?),
            written => written?.rows,
        };
        if let Some(stored) = stored(&rows)? {
            return Ok(stored);
        }
        let mut gave_way = 0;
        let stored = transact!(self, |transaction| {
            store_with_care(&transaction, uaid, month, &message, &mut gave_way).await
        })?;
        if stored == Stored::Done {
            self.gave_way.fetch_add(gave_way, Ordering::Relaxed);
        }
        Ok(stored)
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

    engine_calls! {
        settle(uaid: Uaid, months: Vec<Month>, deletions: Vec<Deletion>) -> SettledMessages =
            |client| async {
                transact!(client, |transaction| settle(&transaction, uaid, &months, &deletions).await)
            };

        record_offers(uaid: Uaid, month: Month, messages: Vec<MessageKey>) -> () = |client| async {
            let (ids, chids) = columns(&messages);
            let written = client.write(uaid, Some(month), RECORD_OFFERS, params![uaid, ids, chids]);
            if_month(written.await).map(drop)
        };
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

/// Stores a message that exceeds a bound, or replaces one with a receipt. Sets how many gave way, unless an attempt whose
/// commit was not answered has stored the message and set that.
async fn store_with_care(
    transaction: &Transaction<'_>,
    uaid: Uaid,
    month: Month,
    message: &Message,
    gave_way: &mut u64,
) -> Result<Stored> {
    lock(transaction, uaid, month).await?;
    let found = transaction.run(Some(month), FIND, params![uaid, message.id]).await?;
    if !found.is_empty() {
        return Ok(Stored::Done);
    }
    *gave_way = 0;
    // Under the lock: from then on the message is of a registered channel, and the newest of its topic.
    let client = transaction.client;
    let query = store_query(client, uaid, month, message, &client.options.waiting);
    if let Some(stored) = stored(&transaction.connection.run(&query).await?)? {
        return Ok(stored);
    }
    let topic = message.topic.as_ref().map(Topic::as_str);
    let replaced = params![uaid, message.chid, topic];
    let replaced = transaction.run(Some(month), OF_TOPIC, replaced).await?;
    let size = match replaced.first() {
        Some(row) => WaitingSize { messages: 1, bytes: row.number(1)? },
        None => WaitingSize::NOTHING,
    };
    *gave_way = match waiting_counts::make_room(transaction, uaid, month, message, size).await? {
        Ok(gave_way) => gave_way,
        Err(scope) => return Ok(Stored::Full(scope)),
    };
    for row in &replaced {
        let replaced = params![uaid, vec![row.message_id(0)?]];
        transaction.run(Some(month), waiting_counts::DELETE, replaced).await?;
        if let Some(expected) = row.receipt_of_message(2)? {
            rules::cancel(&Feeds::writing(transaction), &expected).await?;
        }
    }
    transaction.run(Some(month), INSERT, insert_values(uaid, message)).await?;
    Ok(Stored::Done)
}

/// What the function of [`STORE`] has done. None if it has done nothing, as the message needs care.
fn stored(rows: &[Row]) -> Result<Option<Stored>> {
    let row = rows.first().ok_or_else(|| SqlError::corrupt("a message has no answer"))?;
    Ok(match row.column::<i32>(0)? {
        0 => Some(Stored::Done),
        1 => Some(Stored::NoSuchChannel),
        2 => Some(Stored::Outranked(row.message_id(1)?)),
        _ => None,
    })
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

/// Stores a message within its bounds.
fn store_query(
    client: &PostgresClient,
    uaid: Uaid,
    month: Month,
    message: &Message,
    WaitingLimits { user, channel, .. }: &WaitingLimits,
) -> Query {
    let mut values = row_values(uaid, message);
    let columns = values.len();
    let bounds = [user.messages_max, user.bytes_max, channel.messages_max, channel.bytes_max];
    values.extend(bounds.map(Value::from));
    client.names.query(Some(month), STORE, values).with_row_of(columns)
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
    settled.subscriptions = rules::settle_all(&Feeds::writing(transaction), receipts).await?;
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

const FIND: &str = "SELECT 1 FROM {s}.messages_{m} WHERE uaid = $1 AND id = $2";

const OF_TOPIC: &str = "
    SELECT id, size, receipt, expires_at FROM {s}.messages_{m}
    WHERE uaid = $1 AND chid = $2 AND topic = $3";

const STORE: &str = "
    SELECT code, other
    FROM {s}.add_messages_{m}($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)";

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
