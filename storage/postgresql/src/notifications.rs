//! SimplePush notifications, one row per channel.

use std::future::ready;

use state_machine::{Chid, Uaid};
use storage::networked::VersionCalls;
use storage::sql::rows::SqlRow;
use storage::sql::statements::{DELETE_NOTIFICATION, SAVE_NOTIFICATION};
use storage::sql::values::{self, values};
use storage::{Notification, engine_calls};

use crate::client::PostgresClient;
use crate::error::{Result, SqlError};
use crate::sql::params;

impl VersionCalls for PostgresClient {
    engine_calls! {
        ensure_notifications() -> () = |_made_with_the_router| ready(Ok::<_, SqlError>(()));

        fetch_notifications(uaid: Uaid, after: Option<Chid>, limit: usize) -> Vec<Notification> =
            |client| async {
                let rows = client.read(None, FETCH, params![uaid, after, limit as u64]).await?;
                rows.iter().map(|row| row.notification(0)).collect::<Result<_>>()
            };

        save_notification(uaid: Uaid, notification: Notification) -> bool = |client| async {
            let values = values::notification(uaid, &notification);
            client.write(uaid, None, SAVE_NOTIFICATION, values).await.map(|saved| saved.is_some())
        };

        delete_notification(uaid: Uaid, chid: Chid, version: Option<u64>) -> bool = |client| async {
            let values = values![uaid, chid, version.map(u64::to_be_bytes)];
            client.write(uaid, None, DELETE_NOTIFICATION, values).await.map(|gone| gone.is_some())
        };
    }
}

const FETCH: &str = "
    SELECT chid, version, data FROM {s}.notifications
    WHERE uaid = $1 AND ($2::uuid IS NULL OR chid > $2) ORDER BY chid LIMIT $3";
