//! Copies a month to another page by page: first the channels, because a message is stored only
//! if its channel is registered, then the messages.

use rusqlite::types::Type;
use rusqlite::{Connection, params};
use state_machine::Uaid;
use storage::maintenance::CopyProgress;
use storage::sql::rows::SqlRow;
use storage::store::Cursor;

use crate::columns::corrupt;
use crate::sql_rows::Columns;
use crate::{channels, messages};

/// Rows that one step reads; the channels of one user agent are never divided.
const ROWS_MAX: u64 = 200;

pub(crate) fn copy(
    from: &Connection,
    to: &Connection,
    after: Option<&Cursor>,
) -> rusqlite::Result<CopyProgress> {
    match after.map_or(Ok(CopyPosition::Channels(None)), CopyPosition::read)? {
        CopyPosition::Channels(after) => copy_channels(from, to, after),
        CopyPosition::Messages(after) => copy_messages(from, to, after),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyPosition {
    /// After the channels of this user agent.
    Channels(Option<Uaid>),
    /// After the message of this rowid.
    Messages(i64),
}

impl CopyPosition {
    pub(crate) fn cursor(self) -> Cursor {
        Cursor::new(match self {
            Self::Channels(None) => "channels".to_owned(),
            Self::Channels(Some(uaid)) => format!("channels {uaid}"),
            Self::Messages(rowid) => format!("messages {rowid}"),
        })
    }

    pub(crate) fn read(cursor: &Cursor) -> rusqlite::Result<Self> {
        let position = match cursor.as_str().split_once(' ') {
            Some(("channels", uaid)) => uaid.parse().ok().map(|uaid| Self::Channels(Some(uaid))),
            Some(("messages", rowid)) => rowid.parse().ok().map(Self::Messages),
            _ => None,
        };
        position.ok_or_else(|| corrupt(0, Type::Text, "not a position in a month"))
    }
}

fn copy_channels(
    from: &Connection,
    to: &Connection,
    after: Option<Uaid>,
) -> rusqlite::Result<CopyProgress> {
    let mut statement = from.prepare_cached(ALL_CHANNELS)?;
    let mut add = to.prepare_cached(channels::ADD)?;
    let mut rows = statement.query(params![after.as_ref().map_or(&[][..], |uaid| &uaid.0)])?;
    let mut copied = CopyProgress::default();
    let mut last = None;
    while let Some(row) = rows.next()? {
        let uaid = Uaid(row.get(0)?);
        if copied.seen >= ROWS_MAX && last != Some(uaid) {
            copied.next = Some(CopyPosition::Channels(last).cursor());
            return Ok(copied);
        }
        copied.seen += 1;
        copied.written += add.execute(params![uaid.0, row.get_ref(1)?.as_blob()?])? as u64;
        last = Some(uaid);
    }
    copied.next = Some(CopyPosition::Messages(0).cursor());
    Ok(copied)
}

fn copy_messages(from: &Connection, to: &Connection, after: i64) -> rusqlite::Result<CopyProgress> {
    let mut statement = from.prepare_cached(ALL_MESSAGES)?;
    let mut rows = statement.query(params![after, ROWS_MAX as i64])?;
    let mut copied = CopyProgress::default();
    let mut last = after;
    while let Some(row) = rows.next()? {
        let message = Columns(row).message(0)?;
        copied.seen += 1;
        copied.written += u64::from(messages::insert(to, Uaid(row.get(13)?), &message)?);
        last = row.get(14)?;
    }
    copied.next = (copied.seen == ROWS_MAX).then(|| CopyPosition::Messages(last).cursor());
    Ok(copied)
}

pub(crate) const ALL_CHANNELS: &str = "
    SELECT uaid, chid FROM channels WHERE uaid > ?1 ORDER BY uaid, chid";

/// The columns of [`messages::FETCH`], then owner and rowid.
pub(crate) const ALL_MESSAGES: &str = "
    SELECT id, expires_at, chid, topic, urgency, accepted_at, ttl,
        encoding, encryption, crypto_key, data, offers, receipt, uaid, rowid
    FROM messages WHERE rowid > ?1 ORDER BY rowid LIMIT ?2";
