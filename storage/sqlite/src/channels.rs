//! The SQL of the registered channels of one month.

use std::collections::BTreeSet;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, params};
use state_machine::{Chid, Uaid};

use crate::statements::has_row;

pub(crate) fn read(conn: &Connection, uaid: Uaid) -> rusqlite::Result<Option<BTreeSet<Chid>>> {
    let mut statement = conn.prepare_cached(READ)?;
    let mut rows = statement.query(params![uaid.0])?;
    let mut channels = None;
    while let Some(row) = rows.next()? {
        let channels = channels.get_or_insert_with(BTreeSet::new);
        if row.get_ref(0)? != KNOWN {
            channels.insert(Chid(row.get(0)?));
        }
    }
    Ok(channels)
}

pub(crate) fn add(
    conn: &Connection,
    uaid: Uaid,
    channels: &BTreeSet<Chid>,
) -> rusqlite::Result<()> {
    let mut statement = conn.prepare_cached(ADD)?;
    statement.execute(params![uaid.0, &[][..]])?;
    for chid in channels {
        statement.execute(params![uaid.0, &chid.0[..]])?;
    }
    Ok(())
}

/// Adds channels, unless the user agent is known.
pub(crate) fn create(
    conn: &Connection,
    uaid: Uaid,
    channels: &BTreeSet<Chid>,
) -> rusqlite::Result<()> {
    match read(conn, uaid)? {
        Some(_known) => Ok(()),
        None => add(conn, uaid, channels),
    }
}

pub(crate) fn remove(conn: &Connection, uaid: Uaid, chid: Chid) -> rusqlite::Result<usize> {
    conn.prepare_cached(REMOVE)?.execute(params![uaid.0, chid.0])
}

pub(crate) fn is_registered(conn: &Connection, uaid: Uaid, chid: Chid) -> rusqlite::Result<bool> {
    has_row(conn, FIND, params![uaid.0, chid.0])
}

/// The `chid` of the row that marks the user agent as known, with channels or without.
const KNOWN: ValueRef<'static> = ValueRef::Blob(&[]);

pub(crate) const READ: &str = "SELECT chid FROM channels WHERE uaid = ?1";

pub(crate) const ADD: &str =
    "INSERT INTO channels (uaid, chid) VALUES (?1, ?2) ON CONFLICT DO NOTHING";

pub(crate) const REMOVE: &str = "DELETE FROM channels WHERE uaid = ?1 AND chid = ?2";

pub(crate) const FIND: &str = "SELECT 1 FROM channels WHERE uaid = ?1 AND chid = ?2";
