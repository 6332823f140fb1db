//! Copies: of a whole store, in pages of rows, and of a month to another one.

use std::sync::Arc;

use futures_util::future::try_join_all;
use state_machine::{Chid, Month, Topic};
use storage::copied_rows::{CopiedPage, CopiedRow, PAGE_BYTES_MAX, PAGE_ROWS_MAX};
use storage::engine_calls;
use storage::maintenance::{CopyProgress, Table};
use storage::networked::CopyCalls;
use storage::rules::record_rows::RecordRows;
use storage::sql::copies::{self, Copied};
use storage::sql::rows::SqlRow;
use storage::store::Cursor;

use crate::client::{PostgresClient, Transaction, transact};
use crate::error::{Result, SqlError, if_month};
use crate::sql::{NONE, Row, count, params};
use crate::{channels, messages};

/// Rows that one step of a copy of a month reads.
const STEP_ROWS_MAX: usize = 200;

/// A part of a table, in the order of its key. Two tables that are read as one follow each other.
///
/// - Its name distinguishes the positions of the parts of a table.
/// - The last column of its statement is the position of a row, as a text. The first parameter is the one after which the
///   page begins, or null, the second the number of rows.
/// - The function decodes a row.
type Part = (&'static str, &'static str, fn(&Row) -> Result<Copied>);

fn parts(table: Table) -> &'static [Part] {
    match table {
        Table::Router => &[],
        Table::Notifications => &[("versions", READ_VERSIONS, |row| {
            one(CopiedRow::Version(row.uaid(0)?, row.notification(1)?))
        })],
        Table::Sequences => {
            &[("sequences", READ_SEQUENCES, |row| one(CopiedRow::Sequence(row.feed_state(0)?)))]
        }
        Table::Feeds => &[
            ("keys", READ_KEYS, |row| copies::read_key(row, 0)),
            ("expected", READ_EXPECTED, |row| copies::read_expected(row, 0)),
        ],
        Table::Messages(_) => &[
            ("channels", READ_CHANNELS, decode_channels),
            ("messages", READ_MESSAGES, |row| {
                one(CopiedRow::Message(row.uaid(13)?, row.message(0)?))
            }),
        ],
    }
}

fn one(row: CopiedRow) -> Result<Copied> {
    Ok((vec![row], 0))
}

async fn read_page(
    client: &PostgresClient,
    table: Table,
    after: Option<Cursor>,
    rows_max: usize,
) -> Result<CopiedPage> {
    if table == Table::Router {
        return Ok(client.records(after.as_ref()).await?.into());
    }
    let parts = parts(table);
    let (at, after) = match &after {
        None => (0, None),
        Some(cursor) => {
            let (of, after) = cursor.as_str().split_once(':').unwrap_or_default();
            let at = parts.iter().position(|(name, ..)| *name == of);
            let unknown = || SqlError::corrupt("the position in a copy");
            (at.ok_or_else(unknown)?, Some(after).filter(|after| !after.is_empty()))
        }
    };
    let (name, statement, decode) = parts[at];
    let params = params![after, rows_max as u64];
    let rows = client.read(table.month(), statement, params).await?;
    let (mut page, mut bytes, mut last) = (CopiedPage::default(), 0, None);
    for row in &rows {
        if bytes >= PAGE_BYTES_MAX {
            break;
        }
        let (read, bytes_read) = decode(row)?;
        page.rows.extend(read);
        bytes += bytes_read;
        last = row.text(row.0.len() - 1)?;
    }
    let is_full = bytes >= PAGE_BYTES_MAX || rows.len() == rows_max;
    page.next = match (last.filter(|_| is_full), parts.get(at + 1)) {
        (Some(last), _) => Some(Cursor::new(format!("{name}:{last}"))),
        (None, Some((next, ..))) => Some(Cursor::new(format!("{next}:"))),
        (None, None) => None,
    };
    Ok(page)
}

fn decode_channels(row: &Row) -> Result<Copied> {
    let chids = row.column::<Vec<uuid::Uuid>>(1)?;
    let chids = chids.into_iter().map(|chid| Chid(chid.into_bytes())).collect();
    one(CopiedRow::Channels(row.uaid(0)?, chids))
}

impl CopyCalls for PostgresClient {
    engine_calls! {
        read_rows(table: Table, after: Option<Cursor>) -> CopiedPage =
            |client| async move { if_month(read_page(client, table, after, PAGE_ROWS_MAX).await) };

        write_rows(table: Table, rows: Arc<Vec<CopiedRow>>) -> () = |client| async {
            transact!(client, |transaction| write_page(&transaction, table, &rows).await)
        };

        copy_rows(from: Month, to: Month, after: Option<Cursor>) -> CopyProgress =
            |client| copy_page(client, from, to, after);
    }

    /// Keys of feeds are read as two rows, and the channels of an agent as one.
    async fn count_rows(&self, table: Table) -> Result<u64> {
        let statement = match table {
            Table::Router => "SELECT count(*) FROM {s}.router",
            Table::Notifications => "SELECT count(*) FROM {s}.notifications",
            Table::Sequences => "SELECT count(*) FROM {s}.sequences",
            Table::Feeds => COUNT_FEEDS,
            Table::Messages(_) => COUNT_MONTH,
        };
        count(&if_month(self.read(table.month(), statement, NONE).await)?)
    }
}

/// First the channels, because a message is copied only if its channel is registered, then the messages.
async fn copy_page(
    client: &PostgresClient,
    from: Month,
    to: Month,
    after: Option<Cursor>,
) -> Result<CopyProgress> {
    if from == to {
        return Ok(CopyProgress::default());
    }
    let page = read_page(client, Table::Messages(from), after, STEP_ROWS_MAX).await?;
    let written = transact!(client, |transaction| async {
        let mut written = 0;
        for row in &page.rows {
            written += copy_row(&transaction, to, row).await?;
        }
        Ok(written)
    }
    .await)?;
    Ok(CopyProgress { seen: page.rows.len() as u64, written, next: page.next })
}

async fn write_page(transaction: &Transaction<'_>, table: Table, rows: &[CopiedRow]) -> Result<()> {
    let writes = rows.iter().map(async |row| {
        let month = table.month();
        if let Some((statement, values)) = copies::write(row)? {
            transaction.run(month, statement, values).await?;
        }
        match row {
            CopiedRow::Channels(uaid, chids) => {
                let params = params![*uaid, chids.clone(), false];
                transaction.run(month, channels::ADD, params).await?;
            }
            CopiedRow::Message(uaid, message) => {
                let values = messages::insert_values(*uaid, message);
                transaction.run(month, messages::INSERT, values).await?;
            }
            _ => {}
        }
        Ok(())
    });
    try_join_all(writes).await.map(drop)
}

/// Returns the number of rows that were written. A message never replaces a newer one of its topic.
async fn copy_row(transaction: &Transaction<'_>, to: Month, row: &CopiedRow) -> Result<u64> {
    let rows = match row {
        CopiedRow::Channels(uaid, chids) => {
            transaction.run(Some(to), COPY_CHANNELS, params![*uaid, chids.clone()]).await?
        }
        CopiedRow::Message(uaid, message) => {
            let topic = message.topic.as_ref().map(Topic::as_str);
            let older = params![*uaid, message.chid, topic, message.id];
            transaction.run(Some(to), DELETE_OLDER, older).await?;
            let values = messages::insert_values(*uaid, message);
            transaction.run(Some(to), COPY_MESSAGE, values).await?
        }
        _ => Vec::new(),
    };
    Ok(u64::from(!rows.is_empty()))
}

const COUNT_FEEDS: &str = "SELECT 2 * (SELECT count(*) FROM {s}.feed_keys) + (SELECT count(*) FROM {s}.receipts_expected)";

const COUNT_MONTH: &str =
    "SELECT (SELECT count(*) FROM {s}.agents_{m}) + (SELECT count(*) FROM {s}.messages_{m})";

/// Unless the agent is known with all of these channels.
const COPY_CHANNELS: &str = "
    SELECT {s}.add_channels_{m}($1, $2, false)
    WHERE NOT EXISTS (SELECT 1 FROM {s}.agents_{m} WHERE uaid = $1)
        OR EXISTS (SELECT 1 FROM unnest($2) AS n(chid) WHERE NOT EXISTS (
            SELECT 1 FROM {s}.channels_{m} c WHERE c.uaid = $1 AND c.chid = n.chid))";

const DELETE_OLDER: &str = "
    DELETE FROM {s}.messages_{m} WHERE uaid = $1 AND chid = $2 AND topic = $3 AND id < $4
        AND EXISTS (SELECT 1 FROM {s}.channels_{m} c WHERE c.uaid = $1 AND c.chid = $2)";

const COPY_MESSAGE: &str = "
    INSERT INTO {s}.messages_{m}
        (uaid, id, expires_at, chid, topic, urgency, accepted_at, ttl,
         encoding, encryption, crypto_key, data, receipt, size, offers)
    SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15
    WHERE EXISTS (SELECT 1 FROM {s}.channels_{m} WHERE uaid = $1 AND chid = $4)
    ON CONFLICT DO NOTHING RETURNING 1";

const READ_VERSIONS: &str = "
    SELECT uaid, chid, version, data, uaid || ' ' || chid FROM {s}.notifications
    WHERE $1::text IS NULL
        OR (uaid, chid) > (split_part($1, ' ', 1)::uuid, split_part($1, ' ', 2)::uuid)
    ORDER BY uaid, chid LIMIT $2";

const READ_SEQUENCES: &str = "
    SELECT name, value, version, keys, horizon, forgotten, mark, marked_at, name
    FROM {s}.sequences WHERE $1::text IS NULL OR name > $1 ORDER BY name LIMIT $2";

const READ_KEYS: &str = "
    SELECT feed, key, version, feed_sync_id, value, feed || chr(1) || key FROM {s}.feed_keys
    WHERE $1::text IS NULL OR (feed, key) > (split_part($1, chr(1), 1), split_part($1, chr(1), 2))
    ORDER BY feed, key LIMIT $2";

const READ_EXPECTED: &str = "
    SELECT feed, key, deadline, feed || chr(1) || key FROM {s}.receipts_expected
    WHERE $1::text IS NULL OR (feed, key) > (split_part($1, chr(1), 1), split_part($1, chr(1), 2))
    ORDER BY feed, key LIMIT $2";

const READ_CHANNELS: &str = "
    SELECT a.uaid, ARRAY(SELECT chid FROM {s}.channels_{m} c WHERE c.uaid = a.uaid), a.uaid::text
    FROM {s}.agents_{m} a WHERE $1::text IS NULL OR a.uaid > $1::uuid ORDER BY a.uaid LIMIT $2";

const READ_MESSAGES: &str = "
    SELECT id, expires_at, chid, topic, urgency, accepted_at, ttl,
        encoding, encryption, crypto_key, data, offers, receipt, uaid, uaid || ' ' || id
    FROM {s}.messages_{m} WHERE $1::text IS NULL
        OR (uaid, id) > (split_part($1, ' ', 1)::uuid, split_part($1, ' ', 2)::uuid)
    ORDER BY uaid, id LIMIT $2";
