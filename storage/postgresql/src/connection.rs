//! A connection to the server, and its prepared statements.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::time::timeout;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, Statement};

use crate::address::{Address, tls_problem};
use crate::error::SqlError;
use crate::sql::Query;

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

/// How long a failed connection is that of others too: what has queued is not held up once by each of it.
const FAILED_FOR: Duration = Duration::from_millis(250);

impl Server {
    fn failure(&self) -> MutexGuard<'_, Option<(Instant, SqlError)>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn connect(&self) -> Result<Connection, SqlError> {
        if let Some((at, error)) = &*self.failure()
            && at.elapsed() < FAILED_FOR
        {
            return Err(error.clone());
        }
        let opened = Connection::open(self).await;
        *self.failure() = opened.as_ref().err().map(|error| (Instant::now(), error.clone()));
        opened
    }
}

/// Statements of one connection that the server keeps prepared. Above it they are forgotten: those of old months are.
const PREPARED_MAX: usize = 500;

pub(crate) struct Connection {
    client: Client,
    /// None behind a pooler.
    prepared: Option<Mutex<HashMap<String, Statement>>>,
    timeout: Duration,
}

impl Connection {
    async fn open(server: &Server) -> Result<Self, SqlError> {
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
        let connection = Self { client, prepared, timeout: *operation_timeout };
        if !server.is_pooled {
            // What this side has given up, the server ends too, and releases its locks.
            let limit = operation_timeout.as_millis();
            let limits = format!(
                "SET statement_timeout = {limit}; SET idle_in_transaction_session_timeout = {limit}"
            );
            connection.execute(&limits).await?;
        }
        Ok(connection)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Runs a statement, prepared before if this connection keeps statements.
    pub(crate) async fn run(&self, query: &Query) -> Result<Vec<Row>, SqlError> {
        let run = async { self.send(query, self.prepare(query).await?.as_ref()).await };
        timeout(self.timeout, run).await.map_err(|_| SqlError::late(self.timeout))?
    }

    /// Runs a statement that was prepared. Those that are polled together are sent together.
    pub(crate) async fn run_prepared(
        &self,
        query: &Query,
        statement: Option<&Statement>,
    ) -> Result<Vec<Row>, SqlError> {
        let run = self.send(query, statement);
        timeout(self.timeout, run).await.map_err(|_| SqlError::late(self.timeout))?
    }

    /// Runs statements without parameters and rows.
    pub(crate) async fn execute(&self, statements: &str) -> Result<(), SqlError> {
        let executed = timeout(self.timeout, self.client.batch_execute(statements)).await;
        Ok(executed.map_err(|_| SqlError::late(self.timeout))??)
    }

    async fn send(
        &self,
        query: &Query,
        statement: Option<&Statement>,
    ) -> Result<Vec<Row>, SqlError> {
        let Some(statement) = statement else {
            let params: Vec<(&(dyn ToSql + Sync), Type)> =
                query.params.iter().map(|param| (&*param.value as _, param.of.clone())).collect();
            return Ok(self.client.query_typed(&query.text, &params).await?);
        };
        let params: Vec<&(dyn ToSql + Sync)> =
            query.params.iter().map(|param| &*param.value as _).collect();
        Ok(self.client.query(statement, &params).await?)
    }

    /// Prepares a statement, unless it is. None behind a pooler.
    pub(crate) async fn prepare(&self, query: &Query) -> Result<Option<Statement>, SqlError> {
        let Some(there) = self.kept().map(|kept| kept.get(&query.text).cloned()) else {
            return Ok(None);
        };
        if there.is_some() {
            return Ok(there);
        }
        let types: Vec<Type> = query.params.iter().map(|param| param.of.clone()).collect();
        let statement = self.client.prepare_typed(&query.text, &types).await?;
        if let Some(mut kept) = self.kept() {
            if kept.len() >= PREPARED_MAX {
                kept.clear();
            }
            kept.insert(query.text.clone(), statement.clone());
        }
        Ok(Some(statement))
    }

    fn kept(&self) -> Option<MutexGuard<'_, HashMap<String, Statement>>> {
        Some(self.prepared.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
