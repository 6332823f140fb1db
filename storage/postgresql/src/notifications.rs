//! SimplePush notifications, one row per channel.

use state_machine::{Chid, Uaid};
use storage::Notification;
use storage::networked::VersionCalls;
use tokio_postgres::Row;

use crate::client::PostgresClient;
use crate::error::SqlError;
use crate::sql::{Columns, Param, params};

impl VersionCalls for PostgresClient {
    /// The table is made with the router table.
    async fn ensure_notifications(&self) -> Result<(), SqlError> {
        Ok(())
    }

    async fn fetch_notifications(
        &self,
        uaid: Uaid,
        after: Option<Chid>,
        limit: usize,
    ) -> Result<Vec<Notification>, SqlError> {
        let rows = self.read(FETCH, params![uaid, after, limit as u64]).await?;
        rows.iter().map(|row| decode(0, row)).collect()
    }

    async fn save_notification(
        &self,
        uaid: Uaid,
        notification: Notification,
    ) -> Result<bool, SqlError> {
        self.write(uaid, SAVE, save_params(uaid, &notification))
            .await
            .map(|written| written.is_some())
    }

    async fn delete_notification(
        &self,
        uaid: Uaid,
        chid: Chid,
        version: Option<u64>,
    ) -> Result<bool, SqlError> {
        let version = version.map(u64::to_be_bytes);
        let params = params![uaid, chid, version.as_ref().map(<[u8; 8]>::as_slice)];
        self.write(uaid, DELETE, params).await.map(|written| written.is_some())
    }
}

/// The parameters of [`SAVE`]. A version is eight bytes, big-endian: PostgreSQL's integers are signed.
pub(crate) fn save_params(
    uaid: Uaid,
    Notification { chid, version, data }: &Notification,
) -> Vec<Param> {
    params![uaid, *chid, &version.to_be_bytes()[..], data.as_deref().map(str::as_bytes)]
}

/// Reads the columns chid, version and data.
pub(crate) fn decode(at: usize, row: &Row) -> Result<Notification, SqlError> {
    let version = row.column::<&[u8]>(at + 1)?.try_into();
    let version = version.map_err(|_| SqlError::corrupt("a SimplePush version"))?;
    let data = row.column::<Option<&[u8]>>(at + 2)?;
    let data = data.map(|data| String::from_utf8_lossy(data).into_owned());
    Ok(Notification { chid: row.chid(at)?, version: u64::from_be_bytes(version), data })
}

const FETCH: &str = "
    SELECT chid, version, data FROM {s}.notifications
    WHERE uaid = $1 AND ($2::uuid IS NULL OR chid > $2) ORDER BY chid LIMIT $3";

pub(crate) const SAVE: &str = "
    INSERT INTO {s}.notifications AS n (uaid, chid, version, data) VALUES ($1, $2, $3, $4)
    ON CONFLICT (uaid, chid) DO UPDATE SET version = excluded.version, data = excluded.data
        WHERE excluded.version > n.version
    RETURNING 1";

const DELETE: &str = "
    DELETE FROM {s}.notifications
    WHERE uaid = $1 AND chid = $2 AND ($3::bytea IS NULL OR version <= $3) RETURNING 1";
