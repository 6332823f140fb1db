//! SimplePush notifications, one row per channel, in the router's file.

use rusqlite::{Connection, params};
use state_machine::{Chid, Uaid};
use storage::data_dir::FileKey;
use storage::notifications::{Notification, NotificationTable};
use storage::sql::rows::SqlRow;
use storage::sql::statements::{DELETE_NOTIFICATION, SAVE_NOTIFICATION};
use storage::sql::values::{self, values};
use storage::store::{StoreFuture, answered};

use crate::Embedded;
use crate::columns::to_i64;
use crate::sql_rows::{Columns, query};

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
            let rows = statement
                .query_map(params![uaid.0, after, to_i64(limit as u64)], |row| {
                    Columns(row).notification(0)
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
    let values = values::notification(uaid, notification);
    query(conn, SAVE_NOTIFICATION, &values).map(|saved| !saved.is_empty())
}

pub(crate) fn delete(
    conn: &Connection,
    uaid: Uaid,
    chid: Chid,
    version: Option<u64>,
) -> rusqlite::Result<bool> {
    let values = values![uaid, chid, version.map(u64::to_be_bytes)];
    query(conn, DELETE_NOTIFICATION, &values).map(|deleted| !deleted.is_empty())
}

pub(crate) const FETCH: &str = "
    SELECT chid, version, data FROM notifications
    WHERE uaid = ?1 AND chid > ?2 ORDER BY chid LIMIT ?3";
