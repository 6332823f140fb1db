//! The connections to the server: lanes for writes and for reads of records, some for other reads, and some for transactions
//! of several steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use state_machine::{Month, Uaid};
use tokio::sync::{Mutex as AsyncMutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::PostgresOptions;
use crate::connection::{Connection, Server};
use crate::error::{ErrorKind, Result, SqlError};
use crate::lanes::{Lanes, Written};
use crate::migrations::Migration;
use crate::sql::{Names, Param, Query, Row};

pub struct PostgresClient {
    pub(crate) server: Arc<Server>,
    pub(crate) names: Names,
    pub(crate) options: PostgresOptions,
    pub(crate) migrations: &'static [Migration],
    lanes: Arc<Lanes>,
    /// Reads of router records: those that have queued are one statement.
    pub(crate) record_reads: Arc<Lanes>,
    readers: Vec<AsyncMutex<Option<Arc<Connection>>>>,
    next_reader: AtomicUsize,
    transactions: Arc<Semaphore>,
    idle: Mutex<Vec<Connection>>,
    /// Messages that were deleted for another one.
    pub(crate) gave_way: AtomicU64,
}

/// Attempts of a transaction that is in the way of others.
pub(crate) const ATTEMPTS_MAX: u32 = 5;

/// Writes that are no agent's are in the order of this one.
pub(crate) const NO_AGENT: Uaid = Uaid([0; 16]);

/// Repeats what was in the way of another transaction, or whose connection ended.
macro_rules! repeated {
    ($attempt:expr) => {{
        let mut attempt = 0;
        loop {
            attempt += 1;
            match $attempt.await {
                Err(error) if error.may_repeat() && attempt < $crate::client::ATTEMPTS_MAX => {
                    tokio::time::sleep($crate::connection::PAUSE * attempt).await;
                }
                done => break done,
            }
        }
    }};
}
pub(crate) use repeated;

/// Runs steps in a transaction.
macro_rules! transact {
    ($client:expr, |$transaction:ident| $steps:expr) => {
        $crate::client::repeated!(async {
            let $transaction = $client.begin().await?;
            let done = $steps;
            $transaction.end(done).await
        })
    };
}
pub(crate) use transact;

impl PostgresClient {
    /// Each kind has `connections` of them, which are opened when they are needed.
    pub(crate) fn new(
        server: Server,
        options: PostgresOptions,
        migrations: &'static [Migration],
    ) -> Self {
        let server = Arc::new(server);
        let connections = options.connections.max(1);
        Self {
            lanes: Lanes::start(&server, connections),
            record_reads: Lanes::start(&server, connections),
            readers: (0..connections).map(|_| AsyncMutex::default()).collect(),
            next_reader: AtomicUsize::new(0),
            transactions: Arc::new(Semaphore::new(connections)),
            idle: Mutex::default(),
            server,
            names: Names { schema: options.schema.clone() },
            options,
            migrations,
            gave_way: AtomicU64::new(0),
        }
    }

    /// Runs a write of an agent, on the tables of a month or on the others, in a transaction with others.
    pub(crate) async fn write<P: Into<Param>>(
        &self,
        uaid: Uaid,
        month: Option<Month>,
        template: &str,
        params: Vec<P>,
    ) -> Result<Written> {
        self.write_query(uaid, self.names.query(month, template, params)).await
    }

    pub(crate) async fn write_query(&self, uaid: Uaid, query: Query) -> Result<Written> {
        self.lanes.write(uaid, query).await
    }

    /// Runs a read. It is repeated once if its connection ends.
    pub(crate) async fn read<P: Into<Param>>(
        &self,
        month: Option<Month>,
        template: &str,
        params: Vec<P>,
    ) -> Result<Vec<Row>> {
        let query = self.names.query(month, template, params);
        let at = self.next_reader.fetch_add(1, Ordering::Relaxed) % self.readers.len();
        let read = async || self.reader(at).await?.run(&query).await;
        match read().await {
            Err(error) if error.ends_connection() => read().await,
            done => done,
        }
    }

    /// A connection for reads of several steps, which others use too.
    pub(crate) async fn any_reader(&self) -> Result<Arc<Connection>> {
        let at = self.next_reader.fetch_add(1, Ordering::Relaxed) % self.readers.len();
        self.reader(at).await
    }

    async fn reader(&self, at: usize) -> Result<Arc<Connection>> {
        let mut slot = self.readers[at].lock().await;
        match slot.as_ref().filter(|connection| !connection.is_closed()) {
            Some(open) => Ok(open.clone()),
            None => {
                let opened = Arc::new(self.server.connect().await?);
                *slot = Some(opened.clone());
                Ok(opened)
            }
        }
    }

    /// Begins a transaction of several steps. It waits for a connection as long as for a statement.
    pub(crate) async fn begin(&self) -> Result<Transaction<'_>> {
        let limit = self.server.operation_timeout;
        let permit = timeout(limit, self.transactions.clone().acquire_owned()).await;
        let permit = permit.map_err(|_| SqlError::late(limit))?.map_err(|_| SqlError::lost())?;
        let idle = || self.idle.lock().pop();
        while let Some(connection) = idle() {
            if !connection.is_closed() && connection.execute("BEGIN").await.is_ok() {
                return Ok(Transaction { client: self, connection, _permit: permit });
            }
        }
        let connection = self.server.connect().await?;
        connection.execute("BEGIN").await?;
        Ok(Transaction { client: self, connection, _permit: permit })
    }
}

/// A transaction. If it is dropped, its connection is closed, and nothing of it is done.
pub(crate) struct Transaction<'a> {
    pub(crate) client: &'a PostgresClient,
    pub(crate) connection: Connection,
    _permit: OwnedSemaphorePermit,
}

impl Transaction<'_> {
    pub(crate) async fn run<P: Into<Param>>(
        &self,
        month: Option<Month>,
        template: &str,
        params: Vec<P>,
    ) -> Result<Vec<Row>> {
        self.connection.run(&self.client.names.query(month, template, params)).await
    }

    /// Commits if all steps succeeded, and takes back what was done if not.
    pub(crate) async fn end<T>(self, steps: Result<T>) -> Result<T> {
        let ended = match &steps {
            Ok(_) => self.connection.execute("COMMIT").await,
            Err(error) if error.kind == ErrorKind::Lost => return steps,
            Err(_) => self.connection.execute("ROLLBACK").await,
        };
        if ended.is_ok() {
            self.client.idle.lock().push(self.connection);
        }
        steps.and_then(|done| ended.map(|()| done))
    }
}
