//! The database of another program, which is read and never written.

use std::error::Error;
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

use crate::address::{Address, AddressError};
use crate::error::{ErrorKind, SqlError};

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an answer may take. A busy server answers others first.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// A read-only transaction on a connection of its own: all its queries see the same instant.
pub struct Snapshot(Client);

/// Why a database cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The server refused the connection or a statement, with this SQLSTATE.
    #[error("{text}")]
    Refused { code: String, text: String },
    #[error("{0}")]
    Unreachable(String),
    /// The connection ended, or the server did not answer in time.
    #[error("{0}")]
    Lost(String),
}

impl Snapshot {
    /// Connects to the server of a URL, which may also be a standby. Tables are those of the schema, or those that the
    /// user sees without a schema's name.
    pub async fn open(url: &str, schema: Option<&str>) -> Result<Self, SnapshotError> {
        let address = Address::parse(url, None)?.read_only();
        let unreachable = |reason: &str| SqlError::unreachable(&address.shown, reason);
        let late = format!("no answer within {} s", CONNECT_TIMEOUT.as_secs());
        let connected = timeout(CONNECT_TIMEOUT, address.connect()).await;
        let connected = connected.map_err(|_late| unreachable(&late))?;
        let snapshot = Self(connected.map_err(|error| {
            if error.source().is_some_and(|source| source.to_string() == "password missing") {
                let code = SqlState::INVALID_PASSWORD.code().to_owned();
                return SnapshotError::Refused { code, text: "PostgreSQL: no password".into() };
            }
            match SqlError::from(error) {
                error if error.is_refused_for_good() => error.into(),
                error => unreachable(&error.to_string()).into(),
            }
        })?);
        snapshot.begin(schema).await?;
        Ok(snapshot)
    }

    /// The pauses between the queries are of any length.
    async fn begin(&self, schema: Option<&str>) -> Result<(), SnapshotError> {
        let begin = format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
             SET LOCAL idle_in_transaction_session_timeout = 0;
             SET LOCAL statement_timeout = {}",
            ANSWER_TIMEOUT.as_millis()
        );
        in_time(self.0.batch_execute(&begin)).await?;
        if let Some(schema) = schema {
            let search = "SELECT set_config('search_path', quote_ident($1), true)";
            in_time(self.0.query(search, &[&schema])).await?;
        }
        Ok(())
    }

    pub async fn prepare(&self, query: &str) -> Result<Statement, SnapshotError> {
        in_time(self.0.prepare(query)).await
    }

    /// The rows of a query. Queries that are polled together are sent together.
    pub async fn rows(
        &self,
        query: &Statement,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, SnapshotError> {
        in_time(self.0.query(query, params)).await
    }
}

impl SnapshotError {
    /// The SQLSTATE, if the server refused.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused { code, .. } => Some(code),
            _ => None,
        }
    }
}

impl From<SqlError> for SnapshotError {
    fn from(error: SqlError) -> Self {
        let text = error.to_string();
        match error.kind {
            ErrorKind::Refused(code) => Self::Refused { code: code.code().to_owned(), text },
            ErrorKind::Unreachable => Self::Unreachable(text),
            _ => Self::Lost(text),
        }
    }
}

async fn in_time<T>(
    answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, SnapshotError> {
    let answer = timeout(ANSWER_TIMEOUT, answer).await;
    Ok(answer.map_err(|_| SqlError::late(ANSWER_TIMEOUT))?.map_err(SqlError::from)?)
}
