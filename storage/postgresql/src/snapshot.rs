//! The database of another program, which is read and never written.

use std::time::Duration;

use parking_lot::Mutex;
use postgresql_address::Address;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};

use crate::connection::{Connection, Server};
use crate::error::Result;
use crate::sql::{Query, params};

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an answer may take. A busy server answers others first.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// A read-only transaction on a connection of its own: all its queries see the same instant.
pub struct Snapshot(Connection);

impl Snapshot {
    /// Connects to the server of a URL, which may also be a standby. Tables are those of the schema, or those that the
    /// user sees without a schema's name.
    pub async fn open(url: &str, schema: Option<&str>) -> Result<Self> {
        let server = Server {
            address: Address::parse(url, None)?.read_only(),
            is_pooled: true,
            connect_timeout: CONNECT_TIMEOUT,
            operation_timeout: ANSWER_TIMEOUT,
            failed: Mutex::default(),
        };
        let snapshot = Self(Connection::open(&server).await?);
        snapshot.begin(schema).await.map(|()| snapshot)
    }

    /// The pauses between the queries are of any length.
    async fn begin(&self, schema: Option<&str>) -> Result<()> {
        let begin = format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
             SET LOCAL idle_in_transaction_session_timeout = 0;
             SET LOCAL statement_timeout = {}",
            ANSWER_TIMEOUT.as_millis()
        );
        self.0.execute(&begin).await?;
        if let Some(schema) = schema {
            let text = "SELECT set_config('search_path', quote_ident($1), true)".to_owned();
            self.0.run(&Query { text, params: params![schema], month: None, columns: 0 }).await?;
        }
        Ok(())
    }

    pub async fn prepare(&self, query: &str) -> Result<Statement> {
        self.0.in_time(self.0.client.prepare(query)).await
    }

    /// The rows of a query. Queries that are polled together are sent together.
    pub async fn rows(
        &self,
        query: &Statement,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>> {
        self.0.in_time(self.0.client.query(query, params)).await
    }
}
