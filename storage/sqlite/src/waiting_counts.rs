//! The SQL of the table `waiting`: how many messages wait for each user agent and in each channel.
//!
//! Triggers of the schema keep it (`schema::MESSAGES`), so that no statement on messages can forget it.

use rusqlite::types::Type;
use rusqlite::{Connection, Row, params};
use state_machine::store::FullScope;
use state_machine::{Chid, Message, MessageId, MessageKey, Time, Topic, Uaid};
use storage::maintenance::WaitingPage;
use storage::sql::rows::SqlRow;
use storage::store::Cursor;
use storage::waiting_limits::{
    WaitingCounts, WaitingLimits, WaitingMessage, WaitingSize, WhenFull,
};

use crate::columns::{change, corrupt, from_i64, to_i64};
use crate::sql_rows::Columns;
use crate::statements::has_row;
use crate::{channels, messages};

/// User agents in a page.
const USERS_MAX: i64 = 1000;

/// How many messages were deleted because they give way to this one, or whose bound it exceeds.
pub(crate) fn make_room(
    conn: &Connection,
    uaid: Uaid,
    message: &Message,
    limits: &WaitingLimits,
) -> rusqlite::Result<Result<usize, FullScope>> {
    if limits.is_none() {
        return Ok(Ok(0));
    }
    let (counts, expires_at) = read(conn, uaid, message.chid)?;
    if limits.exceeded_by(&counts, WaitingSize::of(message), WaitingSize::NOTHING).is_none() {
        return Ok(Ok(0));
    }
    if !channels::is_registered(conn, uaid, message.chid)? || is_stored(conn, uaid, message.id)? {
        return Ok(Ok(0));
    }
    // The endpoint's time of the push.
    let now = message.accepted_at;
    if expires_at <= now {
        change(conn, DELETE_EXPIRED, params![uaid.0, to_i64(now.0)])?;
        change(conn, SET_EXPIRY, params![uaid.0])?;
    }
    delete_unregistered(conn, uaid)?;
    let (counts, _) = read(conn, uaid, message.chid)?;
    let replaced = of_topic(conn, uaid, message)?;
    match limits.exceeded_by(&counts, WaitingSize::of(message), replaced) {
        Some(_) if limits.when_full == WhenFull::Replace => {
            replace(conn, uaid, message, limits, counts, replaced)
        }
        exceeded => Ok(exceeded.map_or(Ok(0), Err)),
    }
}

/// Deletes the messages of channels that were unregistered since. An agent does so when it reads them.
fn delete_unregistered(conn: &Connection, uaid: Uaid) -> rusqlite::Result<()> {
    let mut statement = conn.prepare_cached(UNREGISTERED)?;
    let channels = statement.query_map(params![uaid.0], |row| row.get::<_, [u8; 16]>(0))?;
    for chid in channels.collect::<rusqlite::Result<Vec<_>>>()? {
        change(conn, DELETE_CHANNEL, params![uaid.0, chid])?;
    }
    Ok(())
}

/// Deletes the messages that give way.
fn replace(
    conn: &Connection,
    uaid: Uaid,
    message: &Message,
    limits: &WaitingLimits,
    counts: WaitingCounts,
    replaced: WaitingSize,
) -> rusqlite::Result<Result<usize, FullScope>> {
    let topic = message.topic.as_ref().map(Topic::as_str);
    let parameters = params![uaid.0, message.chid.0, topic];
    let mut statement = conn.prepare_cached(LIST)?;
    let rows = statement.query_map(parameters, waiting_row)?.collect::<rusqlite::Result<_>>()?;
    match limits.give_way(rows, counts, message, replaced) {
        Ok(deleted) => messages::delete(conn, uaid, &deleted).map(Ok),
        Err(exceeded) => Ok(Err(exceeded)),
    }
}

fn waiting_row(row: &Row<'_>) -> rusqlite::Result<WaitingMessage<MessageKey>> {
    let row = Columns(row);
    let (id, chid, urgency) = (row.message_id(0)?, row.chid(1)?, row.urgency(2)?);
    let key = MessageKey { id, chid, topic: None };
    Ok(WaitingMessage { key, id, chid, urgency, bytes: row.number(3)? })
}

/// What waits, and a time before which no message of the user agent expires.
fn read(conn: &Connection, uaid: Uaid, chid: Chid) -> rusqlite::Result<(WaitingCounts, Time)> {
    let mut statement = conn.prepare_cached(READ)?;
    let mut rows = statement.query(params![uaid.0, chid.0])?;
    let (mut counts, mut expires_at) = (WaitingCounts::default(), Time(u64::MAX));
    while let Some(row) = rows.next()? {
        let waiting = WaitingSize { messages: from_i64(row.get(1)?), bytes: from_i64(row.get(2)?) };
        if row.get_ref(0)?.as_blob()?.is_empty() {
            (counts.user, expires_at) = (waiting, Time(from_i64(row.get(3)?)));
        } else {
            counts.channel = waiting;
        }
    }
    Ok((counts, expires_at))
}

/// Counts what waits for a page of user agents.
pub(crate) fn page(conn: &Connection, after: Option<&Cursor>) -> rusqlite::Result<WaitingPage> {
    let after = after.map(|cursor| Uaid::parse(cursor.as_str()));
    let after = after.transpose().map_err(|_| corrupt(0, Type::Text, "not a uaid"))?;
    let mut statement = conn.prepare_cached(PAGE)?;
    let mut rows =
        statement.query(params![after.map_or(vec![], |uaid| uaid.0.to_vec()), USERS_MAX])?;
    let (mut page, mut users, mut last) = (WaitingPage::default(), 0, Uaid([0; 16]));
    while let Some(row) = rows.next()? {
        (last, users) = (Uaid(row.get(0)?), users + 1);
        page.messages += from_i64(row.get(1)?);
        page.bytes += from_i64(row.get(2)?);
    }
    page.next = (users == USERS_MAX).then(|| Cursor::new(last.to_string()));
    Ok(page)
}

fn is_stored(conn: &Connection, uaid: Uaid, id: MessageId) -> rusqlite::Result<bool> {
    has_row(conn, FIND, params![uaid.0, id.to_bytes()])
}

/// What a message of the same topic occupies.
fn of_topic(conn: &Connection, uaid: Uaid, message: &Message) -> rusqlite::Result<WaitingSize> {
    let Some(topic) = &message.topic else { return Ok(WaitingSize::NOTHING) };
    let mut statement = conn.prepare_cached(OF_TOPIC)?;
    let mut rows = statement.query(params![uaid.0, message.chid.0, topic.as_str()])?;
    match rows.next()? {
        Some(row) => Ok(WaitingSize { messages: 1, bytes: from_i64(row.get(0)?) }),
        None => Ok(WaitingSize::NOTHING),
    }
}

/// The row of an empty `chid` is that of the user.
pub(crate) const READ: &str = "
    SELECT chid, messages, bytes, expires_at FROM waiting WHERE uaid = ?1 AND chid = x''
    UNION ALL
    SELECT chid, messages, bytes, expires_at FROM waiting WHERE uaid = ?1 AND chid = ?2";

pub(crate) const PAGE: &str = "
    SELECT uaid, messages, bytes FROM waiting WHERE uaid > ?1 AND chid = x''
    ORDER BY uaid LIMIT ?2";

pub(crate) const FIND: &str = "SELECT 1 FROM messages WHERE uaid = ?1 AND id = ?2";

pub(crate) const OF_TOPIC: &str = "
    SELECT ifnull(octet_length(data), 0) + ifnull(octet_length(encryption), 0)
        + ifnull(octet_length(crypto_key), 0)
    FROM messages WHERE uaid = ?1 AND chid = ?2 AND topic = ?3 AND topic IS NOT NULL";

/// All but the message of the topic.
pub(crate) const LIST: &str = "
    SELECT id, chid, urgency, ifnull(octet_length(data), 0) + ifnull(octet_length(encryption), 0)
        + ifnull(octet_length(crypto_key), 0)
    FROM messages WHERE uaid = ?1 AND NOT (chid = ?2 AND topic IS ?3 AND topic IS NOT NULL)";

pub(crate) const UNREGISTERED: &str = "
    SELECT chid FROM waiting WHERE uaid = ?1 AND chid != x'' AND NOT EXISTS (
        SELECT 1 FROM channels WHERE channels.uaid = ?1 AND channels.chid = waiting.chid)";

pub(crate) const DELETE_CHANNEL: &str = "DELETE FROM messages WHERE uaid = ?1 AND +chid = ?2";

/// The plus keeps SQLite from the index of the expiries of all users.
pub(crate) const DELETE_EXPIRED: &str = "
    DELETE FROM messages WHERE uaid = ?1 AND +expires_at <= ?2";

pub(crate) const SET_EXPIRY: &str = "
    UPDATE waiting SET expires_at = (SELECT min(+expires_at) FROM messages WHERE uaid = ?1)
    WHERE uaid = ?1 AND chid = x''";
