//! Inactive users, by the index on `last_connect`, and what a drop deletes.

use state_machine::{Month, Uaid};
use storage::engine_calls;
use storage::maintenance::{InactiveUser, InactiveUsers, MonthRange, ROWS_IN_A_STEP};
use storage::networked::UserCalls;
use storage::sql::inactive_users as sql;
use storage::store::Cursor;

use crate::client::PostgresClient;
use crate::error::{Result, if_month};
use crate::sql::{NONE, count, holds, params, position};

impl UserCalls for PostgresClient {
    engine_calls! {
        inactive_users(seen: MonthRange, after: Option<Cursor>) -> InactiveUsers = |client| async {
            let (statement, values) = sql::find(seen, position(after.as_ref(), InactiveUser::at)?);
            sql::page(&client.read(None, statement, values).await?)
        };
    }

    async fn delete_rows(&self, uaids: Vec<Uaid>, month: Month) -> Result<bool> {
        let Some(first) = uaids.first().copied() else { return Ok(false) };
        let params = params![uaids, ROWS_IN_A_STEP as u64];
        let deleted = if_month(self.write(first, Some(month), DELETE, params).await)?;
        Ok(count(&deleted.rows)? > 0)
    }

    async fn has_rows(&self, month: Month) -> Result<bool> {
        let rows = if_month(self.read(Some(month), HAS_ROWS, NONE).await)?;
        holds(&rows)
    }
}

const DELETE: &str = "
    WITH agents AS (DELETE FROM {s}.agents_{m} WHERE uaid = ANY($1) RETURNING 1),
    channels AS (DELETE FROM {s}.channels_{m} WHERE uaid = ANY($1) RETURNING 1),
    page AS (
        SELECT page.uaid, page.id FROM unnest($1) AS u(uaid) CROSS JOIN LATERAL (
            SELECT m.uaid, m.id FROM {s}.messages_{m} m WHERE m.uaid = u.uaid LIMIT $2) page),
    messages AS (
        DELETE FROM {s}.messages_{m} d USING page p WHERE d.uaid = p.uaid AND d.id = p.id RETURNING 1)
    SELECT (SELECT count(*) FROM agents) + (SELECT count(*) FROM channels) + (SELECT count(*) FROM messages)";

const HAS_ROWS: &str = "SELECT EXISTS (SELECT 1 FROM {s}.agents_{m})";
