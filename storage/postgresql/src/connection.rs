//! A connection to the server, and its prepared statements.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use postgresql_address::{Address, tls_problem};
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

use crate::error::{Result, SqlError};
use crate::sql::{Query, Row};

/// How connections are made.
pub(crate) struct Server {
    pub(crate) address: Address,
    /// Whether a pooler may give each transaction to another session, which has no statements that were prepared before.
    pub(crate) is_pooled: bool,
    pub(crate) connect_timeout: Duration,
    /// Limit of a statement, or of a transaction that is sent at once.
    pub(crate) operation_timeout: Duration,
    /// When a connection could not be opened last, and why.
    pub(crate) failed: Mutex<Option<(Instant, SqlError)>>,
}

/// The pause before another attempt of what may be repeated, multiplied by its number.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);

/// How long a failed connection is that of others too: what has queued is not held up once by each of it.
const FAILED_FOR: Duration = Duration::from_millis(250);

impl Server {
    pub(crate) async fn connect(&self) -> Result<Connection> {
        if let Some((at, error)) = &*self.failed.lock()
            && at.elapsed() < FAILED_FOR
        {
            return Err(error.clone());
        }
        let opened = Connection::open(self).await;
        *self.failed.lock() = opened.as_ref().err().map(|error| (Instant::now(), error.clone()));
        opened
    }
}

/// Statements of one connection that the server keeps prepared. Above it they are forgotten: those of old months are.
const PREPARED_MAX: usize = 500;

pub(crate) struct Connection {
    pub(crate) client: Client,
    /// None behind a pooler.
    prepared: Option<Mutex<HashMap<String, Statement>>>,
    timeout: Duration,
    /// Whether an error has ended it, also if the server does not know.
    is_lost: AtomicBool,
}

impl Connection {
    pub(crate) async fn open(server: &Server) -> Result<Self> {
        let Server { address, connect_timeout, operation_timeout, .. } = server;
        let unreachable = |reason: &str| SqlError::unreachable(&address.shown, reason);
        // The driver's own limit ends with the TCP connection. This one covers the login too.
        let connected = timeout(*connect_timeout, address.connect()).await;
        let late = format!("no answer within {} ms", connect_timeout.as_millis());
        let client = connected.map_err(|_late| unreachable(&late))?.map_err(|error| {
            let problem = tls_problem(&error);
            match SqlError::from(error) {
                error if error.is_refused_for_good() => error,
                error => unreachable(&problem.unwrap_or_else(|| error.to_string())),
            }
        })?;
        let prepared = (!server.is_pooled).then(Mutex::default);
        let is_lost = AtomicBool::default();
        let connection = Self { client, prepared, timeout: *operation_timeout, is_lost };
        if !server.is_pooled {
            // The server ends a statement before this side gives up, so that the connection stays, and releases its locks.
            // A plan that was made while a table was small is kept as it grows.
            let limit = operation_timeout.as_millis();
            let limits = format!(
                "SET statement_timeout = {}; SET idle_in_transaction_session_timeout = {limit};
                 SET enable_seqscan = off",
                limit * 9 / 10
            );
            connection.execute(&limits).await?;
        }
        Ok(connection)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed) || self.client.is_closed()
    }

    /// Runs a statement, prepared before if this connection keeps statements.
    pub(crate) async fn run(&self, query: &Query) -> Result<Vec<Row>> {
        self.in_time(async { self.send(&[query], self.prepare(query).await?.as_ref()).await }).await
    }

    /// Runs the statement of queries that join, which was prepared. Those that are polled together are sent together.
    pub(crate) async fn run_prepared(
        &self,
        queries: &[&Query],
        statement: Option<&Statement>,
    ) -> Result<Vec<Row>> {
        self.in_time(self.send(queries, statement)).await
    }

    /// Runs statements without parameters and rows.
    pub(crate) async fn execute(&self, statements: &str) -> Result<()> {
        self.in_time(self.client.batch_execute(statements)).await
    }

    pub(crate) async fn in_time<T, E: Into<SqlError>>(
        &self,
        answer: impl Future<Output = Result<T, E>>,
    ) -> Result<T> {
        let answer = match timeout(self.timeout, answer).await {
            Ok(answer) => answer.map_err(Into::into),
            Err(_late) => Err(SqlError::late(self.timeout)),
        };
        answer.inspect_err(|error| {
            self.is_lost.fetch_or(error.ends_connection(), Ordering::Relaxed);
        })
    }

    async fn send(&self, queries: &[&Query], statement: Option<&Statement>) -> Result<Vec<Row>> {
        let (query, sent) = (queries[0], Query::sent(queries));
        let values = sent.iter().map(|value| &**value as &(dyn ToSql + Sync));
        let rows = match statement {
            Some(statement) => self.client.query(statement, &values.collect::<Vec<_>>()).await,
            None => {
                let params = values.zip(query.types()).collect::<Vec<_>>();
                self.client.query_typed(&query.text, &params).await
            }
        };
        let rows = rows.map_err(|error| SqlError::from(error).of(query.month))?;
        Ok(rows.into_iter().map(Row).collect())
    }

    /// Prepares a statement, unless it is. None behind a pooler.
    pub(crate) async fn prepare(&self, query: &Query) -> Result<Option<Statement>> {
        let Some(there) = self.kept().map(|kept| kept.get(&query.text).cloned()) else {
            return Ok(None);
        };
        if there.is_some() {
            return Ok(there);
        }
        let types = query.types();
        let statement = self.in_time(self.client.prepare_typed(&query.text, &types)).await;
        let statement = statement.map_err(|error| error.of(query.month))?;
        if let Some(mut kept) = self.kept() {
            if kept.len() >= PREPARED_MAX {
                kept.clear();
            }
            kept.insert(query.text.clone(), statement.clone());
        }
        Ok(Some(statement))
    }

    fn kept(&self) -> Option<MutexGuard<'_, HashMap<String, Statement>>> {
        self.prepared.as_ref().map(Mutex::lock)
    }
}
