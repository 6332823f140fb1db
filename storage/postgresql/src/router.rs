//! The rows of the router table.

use state_machine::{BridgeRecipient, Month, RouterRecord, Time, Uaid};
use storage::maintenance::DROPPED;
use storage::networked::{RecordCalls, RouterCalls};
use storage::record_row::RecordRow;
use storage::registration::NewRecord;
use storage::rules::record_rows::{
    Changed, GuardedChange, RecordChange, RecordGuard, RecordPage, RecordRows,
};
use storage::sql::rows::SqlRow;
use storage::sql::statements::{DROP_RECORD, READ_RECORD, WRITE_RECORD};
use storage::sql::values;
use storage::store::{Cursor, RegisterResult};
use storage::{record_rules, router_rules};
use uuid::Uuid;

use crate::client::{PostgresClient, Transaction, transact};
use crate::error::{Result, SqlError};
use crate::sql::{NONE, Param, params, position};

/// Records in one page.
const RECORDS_MAX: u64 = 1000;

impl RecordRows for PostgresClient {
    type Error = SqlError;

    async fn record(&self, uaid: Uaid) -> Result<Option<RecordRow>> {
        let query = self.names.query(None, READ_RECORDS, params![uaid]).with_row_of(1);
        let rows = self.record_reads.write(uaid, query).await?.rows;
        let row = rows.first().ok_or_else(|| SqlError::corrupt("a read has no answer"))?;
        row.column::<Option<Uuid>>(0)?.map(|_uaid| row.record(0)).transpose()
    }

    async fn change_record(&self, change: &GuardedChange) -> Result<Changed> {
        let (statement, params) = change_query(change);
        let written = self.write(change.uaid, None, &statement, params).await?;
        Ok(match written.rows.first().map(|row| row.record(0)).transpose()? {
            Some(before) => Changed::Done(before),
            None => Changed::Refused(None),
        })
    }

    /// In the order of the uaids.
    async fn records(&self, after: Option<&Cursor>) -> Result<RecordPage> {
        let params =
            params![position(after, |after| Uaid::parse(after.as_str()).ok())?, RECORDS_MAX];
        let rows = self.read(None, RECORDS, params).await?;
        let rows = rows.iter().map(|row| row.record(0)).collect::<Result<Vec<_>, _>>()?;
        let last = rows.last().filter(|_| rows.len() as u64 == RECORDS_MAX);
        let next = last.map(|last| Cursor::new(last.uaid.to_string()));
        Ok(RecordPage { rows, next, unreadable: 0 })
    }
}

fn change_query(GuardedChange { uaid, guards, change }: &GuardedChange) -> (String, Vec<Param>) {
    let (mut node, mut is_bridged, mut connected_at, mut last_connect) = (None, false, None, None);
    let (mut curmonth, mut oldmonth) = (None, None);
    for guard in guards {
        match guard {
            RecordGuard::Node(of) => node = Some(of.as_str()),
            RecordGuard::Bridged => is_bridged = true,
            RecordGuard::ConnectedAt(at) => connected_at = Some(*at),
            RecordGuard::LastConnect(key) => last_connect = Some(Time(key.0)),
            RecordGuard::Curmonth(month) => curmonth = Some(month.to_string()),
            // An empty text stands for none.
            RecordGuard::Oldmonth(month) => oldmonth = Some(text(*month).unwrap_or_default()),
        }
    }
    let mut params =
        params![*uaid, node, is_bridged, connected_at, last_connect, curmonth, oldmonth];
    let (columns, values) = changed_columns(change);
    params.extend(values);
    (CHANGE.replace("{columns}", columns), params)
}

/// The columns that a change sets, from the eighth parameter on.
fn changed_columns(change: &RecordChange) -> (&'static str, Vec<Param>) {
    match *change {
        RecordChange::Months { curmonth, oldmonth, last_connect } => (
            "curmonth = $8, oldmonth = $9, last_connect = coalesce($10, r.last_connect)",
            params![curmonth.to_string(), text(oldmonth), last_connect.map(|key| Time(key.0))],
        ),
        RecordChange::EndMove => ("oldmonth = NULL", Vec::new()),
        RecordChange::ClearNode => ("node_id = NULL", Vec::new()),
        RecordChange::MarkDropped => ("router_type = $8", params![DROPPED]),
        RecordChange::Connected { at, last_connect } => (
            "connected_at = $8, last_connect = coalesce($9, r.last_connect)",
            params![at, last_connect.map(|key| Time(key.0))],
        ),
    }
}

impl RouterCalls for PostgresClient {
    router_rules!();

    /// A known agent costs one statement.
    async fn register(&self, new: NewRecord) -> Result<RegisterResult> {
        let mut is_repeated = false;
        if let Some(node) = &new.node {
            let (router_type, node) = (new.router_type.as_str(), node.as_str());
            let params = params![new.uaid, router_type, node, new.connected_at, new.last_connect.0];
            let written = self.write(new.uaid, None, RECONNECT, params).await?;
            is_repeated = written.is_repeated;
            if let Some(before) = written.rows.first().map(|row| row.record(0)).transpose()? {
                return Ok(new.registered(Some(&before)));
            }
        }
        transact!(self, |transaction| register_in(&transaction, &new, is_repeated).await)
    }

    async fn drop_user(&self, uaid: Uaid) -> Result<bool> {
        self.write(uaid, None, DROP_RECORD, params![uaid]).await.map(|dropped| dropped.is_some())
    }

    async fn drop_bridged(&self, uaid: Uaid, recipient: BridgeRecipient) -> Result<bool> {
        transact!(self, |transaction| async {
            let there = locked(&transaction, uaid).await?;
            let is_it = there.is_some_and(|there| there.is_reached_by(&recipient));
            if is_it {
                transaction.run(None, DROP_RECORD, params![uaid]).await?;
            }
            Ok(is_it)
        }
        .await)
    }

    /// Writes the row of its session: nodes do not wait for each other.
    async fn check(&self) -> Result<()> {
        let random = Uaid(fastrand::u128(..).to_be_bytes());
        self.read(None, RECORDS, params![Some(random), 1_u64]).await?;
        self.write(random, None, CHECK, NONE).await.map(drop)
    }
}

impl RecordCalls for PostgresClient {
    record_rules!();

    async fn create_record(&self, record: RouterRecord) -> Result<bool> {
        let record = RecordRow::from(record);
        let params = values::record(&record, false);
        let written = self.write(record.uaid, None, &write(), params).await;
        written.map(|written| written.is_some())
    }

    async fn delete_uaids(&self, uaids: Vec<Uaid>) -> Result<()> {
        let Some(first) = uaids.first().copied() else { return Ok(()) };
        let delete = "DELETE FROM {s}.router WHERE uaid = ANY($1) AND router_type = $2";
        self.write(first, None, delete, params![uaids, DROPPED]).await.map(drop)
    }
}

async fn locked(transaction: &Transaction<'_>, uaid: Uaid) -> Result<Option<RecordRow>> {
    let rows = transaction.run(None, &format!("{READ_RECORD} FOR UPDATE"), params![uaid]).await?;
    rows.first().map(|row| row.record(0)).transpose()
}

/// Registers an agent, unless the record's `connected_at` is as new.
async fn register_in(
    transaction: &Transaction<'_>,
    new: &NewRecord,
    is_repeated: bool,
) -> Result<RegisterResult> {
    let there = locked(transaction, new.uaid).await?;
    let result = new.over(there.as_ref());
    match (&result, there) {
        // The first attempt wrote it and its answer was lost, with the former binding.
        (RegisterResult::Superseded(_), Some(there)) if is_repeated && new.is_in(&there) => {
            return Ok(new.registered(Some(&RecordRow { node: None, ..there })));
        }
        (RegisterResult::Registered(record, _), there) => {
            let record = RecordRow::from(record.clone());
            let params = values::record(&record, there.is_some());
            // A record that another transaction makes meanwhile is not replaced.
            if transaction.run(None, &write(), params).await?.is_empty() {
                return Err(SqlError::conflict());
            }
        }
        _ => {}
    }
    Ok(result)
}

/// Returns a row if it has written the record.
fn write() -> String {
    format!("{WRITE_RECORD} RETURNING 1")
}

fn text(month: Option<Month>) -> Option<String> {
    month.map(|month| month.to_string())
}

/// A row for each uaid, without values if it has no record. Each is looked up by itself: `OFFSET 0` permits no other plan.
const READ_RECORDS: &str = "
    SELECT r.* FROM unnest($1) WITH ORDINALITY AS of(id, n) LEFT JOIN LATERAL (
        SELECT uaid, router_type, node_id, connected_at, last_connect, curmonth, oldmonth, router_data
        FROM {s}.router WHERE uaid = of.id OFFSET 0) r ON true
    ORDER BY n";

/// From the first one, if there is no uaid before them.
const RECORDS: &str = "
    SELECT uaid, router_type, node_id, connected_at, last_connect, curmonth, oldmonth, router_data
    FROM {s}.router WHERE $1::uuid IS NULL OR uaid > $1 ORDER BY uaid LIMIT $2";

/// Returns the record before it. It is locked first, so that it is the one that is changed.
const RECONNECT: &str = "
    WITH there AS (SELECT * FROM {s}.router WHERE uaid = $1 FOR UPDATE)
    UPDATE {s}.router r SET node_id = $3, connected_at = $4, last_connect = $5 FROM there t
    WHERE r.uaid = t.uaid AND t.router_type = $2 AND t.connected_at < $4
    RETURNING t.uaid, t.router_type, t.node_id, t.connected_at, t.last_connect, t.curmonth, t.oldmonth, t.router_data";

/// Each parameter from the second to the seventh is a guard, if it is not null.
const CHANGE: &str = "
    WITH there AS (SELECT * FROM {s}.router WHERE uaid = $1 FOR UPDATE)
    UPDATE {s}.router r SET {columns} FROM there t
    WHERE r.uaid = t.uaid
        AND ($2::text IS NULL OR t.node_id = $2)
        AND (NOT $3::boolean OR t.router_type IN ('fcm', 'apns') AND t.router_data IS NOT NULL)
        AND ($4::bigint IS NULL OR t.connected_at = $4)
        AND ($5::bigint IS NULL OR t.last_connect = $5)
        AND ($6::text IS NULL OR t.curmonth = $6)
        AND ($7::text IS NULL OR coalesce(t.oldmonth, '') = $7)
    RETURNING t.uaid, t.router_type, t.node_id, t.connected_at, t.last_connect, t.curmonth, t.oldmonth, t.router_data";

const CHECK: &str = "
    INSERT INTO {s}.health (session, checks) VALUES (pg_backend_pid() % 64, 1)
    ON CONFLICT (session) DO UPDATE SET checks = health.checks + 1";
