//! Inactive users, by the index on `last_connect`, and what a drop deletes.

use state_machine::{LastConnect, Month, Uaid};
use storage::maintenance::{
    InactiveUser, InactiveUsers, MonthRange, ROWS_IN_A_STEP, USERS_IN_A_BATCH,
};
use storage::networked::UserCalls;
use storage::sql::rows::SqlRow;
use storage::store::Cursor;

use crate::client::PostgresClient;
use crate::error::{Result, if_month};
use crate::sql::{NONE, count, holds, params, position};

impl UserCalls for PostgresClient {
    async fn inactive_users(
        &self,
        seen: MonthRange,
        after: Option<Cursor>,
    ) -> Result<InactiveUsers> {
        let keys = seen.keys();
        // No agent has a key below the first of its month, so that none is left out here.
        let before_all = InactiveUser { uaid: Uaid([0; 16]), last_connect: keys.start };
        let InactiveUser { uaid, last_connect } =
            position(after.as_ref(), InactiveUser::at)?.unwrap_or(before_all);
        let params = params![last_connect.0, uaid, keys.end.0, USERS_IN_A_BATCH as u64];
        let rows = self.read(None, FIND, params).await?;
        let users = rows.iter().map(|row| {
            Ok(InactiveUser { last_connect: LastConnect(row.number(0)?), uaid: row.uaid(1)? })
        });
        let users = users.collect::<Result<Vec<_>>>()?;
        let next = users.get(USERS_IN_A_BATCH - 1).map(InactiveUser::cursor);
        Ok(InactiveUsers { users, next })
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

const FIND: &str = "
    SELECT last_connect, uaid FROM {s}.router
    WHERE (last_connect, uaid) > ($1, $2) AND last_connect < $3
    ORDER BY last_connect, uaid LIMIT $4";

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
