//! SimplePush notifications, one row per channel, in the router's file.

use rusqlite::{Connection, params};
use state_machine::{Chid, Uaid};
use storage::data_dir::FileKey;
use storage::notifications::{Notification, NotificationTable};
use storage::store::{StoreFuture, answered};

use crate::Embedded;
use crate::columns::{change, to_i64};

impl NotificationTable for Embedded {
    /// The table is part of the router's file.
    fn ensure_notifications(&self) -> StoreFuture<()> {
        answered(Ok(()))
    }

    fn fetch_notifications(
        &self,
        uaid: Uaid,
        after: Option<Chid>,
        limit: usize,
    ) -> StoreFuture<Vec<Notification>> {
        self.read(FileKey::Router, |conn| {
            let after = after.as_ref().map_or(&[][..], |chid| &chid.0);
            let mut statement = conn.prepare_cached(FETCH)?;
            let rows =
                statement.query_map(params![uaid.0, after, to_i64(limit as u64)], |row| {
                    let version = u64::from_be_bytes(row.get(1)?);
                    Ok(Notification { chid: Chid(row.get(0)?), version, data: row.get(2)? })
                })?;
            rows.collect()
        })
    }

    fn save_notification(&self, uaid: Uaid, notification: Notification) -> StoreFuture<bool> {
        self.write_admitted(uaid, FileKey::Router, move |files| {
            files.write(FileKey::Router, |conn| save(conn, uaid, &notification))
        })
    }

    fn delete_notification(
        &self,
        uaid: Uaid,
        chid: Chid,
        version: Option<u64>,
    ) -> StoreFuture<bool> {
        self.write(Some(uaid), FileKey::Router, move |conn| delete(conn, uaid, chid, version))
    }
}

pub(crate) fn save(
    conn: &Connection,
    uaid: Uaid,
    notification: &Notification,
) -> rusqlite::Result<bool> {
    let Notification { chid, version, data } = notification;
    change(conn, SAVE, params![uaid.0, chid.0, version.to_be_bytes(), data])
}

pub(crate) fn delete(
    conn: &Connection,
    uaid: Uaid,
    chid: Chid,
    version: Option<u64>,
) -> rusqlite::Result<bool> {
    change(conn, DELETE, params![uaid.0, chid.0, version.map(u64::to_be_bytes)])
}

pub(crate) const FETCH: &str = "
    SELECT chid, version, data FROM notifications
    WHERE uaid = ?1 AND chid > ?2 ORDER BY chid LIMIT ?3";

pub(crate) const SAVE: &str = "
    INSERT INTO notifications (uaid, chid, version, data) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (uaid, chid) DO UPDATE SET version = excluded.version, data = excluded.data
        WHERE excluded.version > notifications.version";

pub(crate) const DELETE: &str = "
    DELETE FROM notifications
    WHERE uaid = ?1 AND chid = ?2 AND (?3 IS NULL OR version <= ?3)";
