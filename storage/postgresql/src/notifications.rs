//! SimplePush notifications, one row per channel.

use state_machine::{Chid, Uaid};
use storage::Notification;
use storage::networked::VersionCalls;
use storage::sql::rows::SqlRow;
use storage::sql::statements::{DELETE_NOTIFICATION, SAVE_NOTIFICATION};
use storage::sql::values::{self, values};

use crate::client::PostgresClient;
use crate::error::Result;
use crate::sql::params;

impl VersionCalls for PostgresClient {
    /// The table is made with the router table.
    async fn ensure_notifications(&self) -> Result<()> {
        Ok(())
    }

    async fn fetch_notifications(
        &self,
        uaid: Uaid,
        after: Option<Chid>,
        limit: usize,
    ) -> Result<Vec<Notification>> {
        let rows = self.read(None, FETCH, params![uaid, after, limit as u64]).await?;
        rows.iter().map(|row| row.notification(0)).collect()
    }

    async fn save_notification(&self, uaid: Uaid, notification: Notification) -> Result<bool> {
        let params = values::notification(uaid, &notification);
        let saved = self.write(uaid, None, SAVE_NOTIFICATION, params).await;
        saved.map(|saved| saved.is_some())
    }

    async fn delete_notification(
        &self,
        uaid: Uaid,
        chid: Chid,
        version: Option<u64>,
    ) -> Result<bool> {
        let params = values![uaid, chid, version.map(u64::to_be_bytes)];
        let deleted = self.write(uaid, None, DELETE_NOTIFICATION, params).await;
        deleted.map(|deleted| deleted.is_some())
    }
}

const FETCH: &str = "
    SELECT chid, version, data FROM {s}.notifications
    WHERE uaid = $1 AND ($2::uuid IS NULL OR chid > $2) ORDER BY chid LIMIT $3";
