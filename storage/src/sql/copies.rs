//! The rows of copies of a whole store, but those of months.

use state_machine::ReceiptRequest;

use super::Statement;
use super::feeds::{EXPECT, put_key};
use super::rows::SqlRow;
use super::statements::{SAVE_NOTIFICATION, WRITE_RECORD};
use super::values::{self, TooLarge};
use crate::copied_rows::CopiedRow;
use crate::receipts::ExpectedReceipt;
use crate::rules::feed_rows::KeyRow;

/// What a row is copied as, and the bytes of values in it.
pub type Copied = (Vec<CopiedRow>, usize);

/// The statement that writes a row. None of a key, which is written with its value, and of the rows of a month.
pub fn write(row: &CopiedRow) -> Result<Option<Statement<'_>>, TooLarge> {
    Ok(Some(match row {
        CopiedRow::Record(record) => (WRITE_RECORD, values::record(record, true)),
        CopiedRow::Version(uaid, version) => {
            (SAVE_NOTIFICATION, values::notification(*uaid, version))
        }
        CopiedRow::Sequence(feed) => (PUT_SEQUENCE, values::feed_state(feed)?),
        CopiedRow::Value { feed, key, version, number, value } => {
            let row = KeyRow { version: *version, number: *number };
            put_key(feed, key, row, value.as_ref())?
        }
        CopiedRow::ExpectedReceipt { feed, key, deadline } => {
            (EXPECT, values::values![feed, key, *deadline])
        }
        CopiedRow::Key { .. } | CopiedRow::Channels(..) | CopiedRow::Message(..) => {
            return Ok(None);
        }
    }))
}

/// Five columns: feed, key, version, number and value.
pub fn read_key<R: SqlRow>(row: &R, at: usize) -> Result<Copied, R::Error> {
    let (feed, key) = (row.feed_name(at)?, row.feed_key(at + 1)?);
    let KeyRow { version, number } = row.key_row(at + 2)?;
    let value = row.feed_value(at + 4)?;
    let bytes = value.as_ref().map_or(0, |value| value.as_str().len());
    let of_key = CopiedRow::Key { feed: feed.clone(), key: key.clone(), version, number };
    Ok((vec![of_key, CopiedRow::Value { feed, key, version, number, value }], bytes))
}

pub fn read_expected<R: SqlRow>(row: &R, at: usize) -> Result<Copied, R::Error> {
    let ExpectedReceipt { request, deadline } = row.expected_receipt(at)?;
    let ReceiptRequest { subscription: feed, key } = request;
    Ok((vec![CopiedRow::ExpectedReceipt { feed, key, deadline }], 0))
}

pub const PUT_SEQUENCE: &str = "
    INSERT INTO main.sequences
        (name, value, version, keys, horizon, forgotten, mark, marked_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
    ON CONFLICT (name) DO UPDATE SET
        value = excluded.value, version = excluded.version, keys = excluded.keys,
        horizon = excluded.horizon, forgotten = excluded.forgotten, mark = excluded.mark,
        marked_at = excluded.marked_at";
