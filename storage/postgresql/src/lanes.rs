//! Writes that share a commit and a round trip, and reads that share a statement.
//!
//! Each lane is a connection. A lane takes what has queued and sends it as one transaction, pipelined with its commit,
//! sorted by month and agent: all nodes lock rows in one order. Neighbours with the same statement are one call of it, if it takes
//! arrays. A commit costs as much as several writes, so that a further lane begins only if [`SHARE`] writes wait for each
//! one at work. If a statement fails, nothing of the transaction is done, and each is sent alone, so that it fails alone.
//! The queue of the engine (`storage::queue`) keeps the order of an agent's writes and bounds how many there are.

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::{join, join_all};
use parking_lot::Mutex;
use state_machine::Uaid;
use tokio::sync::{Notify, oneshot};
use tokio::time::{sleep, timeout};

use crate::connection::{Connection, PAUSE, Server};
use crate::error::{ErrorKind, Result, SqlError};
use crate::sql::{Query, Row};

/// Writes in one transaction.
const BATCH_MAX: usize = 200;

/// Writes that wait for each lane at work when another one begins. A commit costs as much as five messages.
const SHARE: usize = 16;

/// After this time at work a lane is late, as its rows are locked or its connection hangs: others do not wait for it.
const LATE: Duration = Duration::from_millis(50);

/// Attempts of a write that is in the way of another node's, or whose connection ended.
const ATTEMPTS_MAX: u32 = 4;

#[derive(Default)]
pub(crate) struct Lanes {
    waiting: Mutex<Waiting>,
    /// Wakes an idle lane.
    wake: Notify,
}

#[derive(Default)]
struct Waiting {
    writes: Vec<Write>,
    /// Writes of agents that a lane has: they would only wait for its locks.
    held: Vec<Write>,
    /// The agents of all lanes at work.
    agents: HashSet<Uaid>,
    /// Lanes at work that are not late.
    at_work: usize,
}

struct Write {
    uaid: Uaid,
    query: Query,
    reply: oneshot::Sender<Result<Written>>,
}

/// The rows that a write returned.
#[derive(Default)]
pub(crate) struct Written {
    pub(crate) rows: Vec<Row>,
    /// Whether it may have been executed before, as its connection ended.
    pub(crate) is_repeated: bool,
}

impl Written {
    /// Whether it returned a row.
    pub(crate) fn is_some(&self) -> bool {
        !self.rows.is_empty()
    }
}

impl Lanes {
    pub(crate) fn start(server: &Arc<Server>, count: usize) -> Arc<Self> {
        let lanes = Arc::<Self>::default();
        for _ in 0..count.max(1) {
            let lane = Lane { server: server.clone(), connection: None };
            drop(tokio::spawn(lane.serve(lanes.clone())));
        }
        lanes
    }

    pub(crate) async fn write(&self, uaid: Uaid, query: Query) -> Result<Written> {
        let (reply, answer) = oneshot::channel();
        self.change(|waiting| waiting.put(Write { uaid, query, reply }));
        answer.await.unwrap_or_else(|_| Err(SqlError::lost()))
    }

    fn change(&self, change: impl FnOnce(&mut Waiting)) {
        let mut waiting = self.waiting.lock();
        change(&mut waiting);
        if waiting.wants_a_lane() {
            self.wake.notify_one();
        }
    }

    async fn take(&self) -> Vec<Write> {
        loop {
            if let Some(batch) = self.waiting.lock().take() {
                return batch;
            }
            self.wake.notified().await;
        }
    }
}

impl Waiting {
    fn wants_a_lane(&self) -> bool {
        self.writes.len() > self.at_work * SHARE
    }

    fn put(&mut self, write: Write) {
        match self.agents.contains(&write.uaid) {
            true => self.held.push(write),
            false => self.writes.push(write),
        }
    }

    fn take(&mut self) -> Option<Vec<Write>> {
        self.wants_a_lane().then(|| {
            self.at_work += 1;
            let count = self.writes.len().min(BATCH_MAX);
            let batch = self.writes.drain(..count).collect::<Vec<_>>();
            self.agents.extend(batch.iter().map(|write| write.uaid));
            for write in std::mem::take(&mut self.writes) {
                self.put(write);
            }
            batch
        })
    }

    /// A lane has done the writes of these agents.
    fn release(&mut self, agents: &[Uaid]) {
        for uaid in agents {
            self.agents.remove(uaid);
        }
        for write in std::mem::take(&mut self.held) {
            self.put(write);
        }
    }
}

struct Lane {
    server: Arc<Server>,
    connection: Option<Connection>,
}

impl Lane {
    async fn serve(mut self, lanes: Arc<Lanes>) {
        loop {
            let batch = lanes.take().await;
            let agents = batch.iter().map(|write| write.uaid).collect::<Vec<_>>();
            let ended = {
                let mut work = pin!(AssertUnwindSafe(self.execute(batch)).catch_unwind());
                let in_time = timeout(LATE, &mut work).await;
                lanes.change(|waiting| waiting.at_work -= 1);
                match in_time {
                    Ok(ended) => ended,
                    Err(_late) => work.await,
                }
            };
            if ended.is_err() {
                // The writes of a batch that panics get no answer: they fail.
                self.connection = None;
            }
            lanes.waiting.lock().release(&agents);
        }
    }

    async fn execute(&mut self, mut batch: Vec<Write>) {
        batch.sort_by_key(|write| (write.query.month, write.uaid));
        let lost = match batch.len() {
            1 => false,
            _ => match self.together(&batch).await {
                Ok(answers) => {
                    for (write, rows) in batch.into_iter().zip(answers) {
                        let _unread = write.reply.send(Ok(Written { rows, is_repeated: false }));
                    }
                    return;
                }
                Err(error) => error.kind == ErrorKind::Lost,
            },
        };
        let (begun, limit) = (Instant::now(), self.server.operation_timeout);
        let mut away = None;
        for write in batch {
            let written = match &away {
                Some(error) => Err(SqlError::clone(error)),
                None => self.alone(&write.query, lost).await,
            };
            // The others of this batch do not wait in turn for a server that is away, or for locks.
            let is_late = begun.elapsed() >= limit;
            away = written.as_ref().err().filter(|error| error.is_away()).cloned();
            away = away.or_else(|| is_late.then(|| SqlError::late(limit)));
            let _unread = write.reply.send(written);
        }
    }

    /// All in one transaction; none of them if one fails.
    async fn together(&mut self, batch: &[Write]) -> Result<Vec<Vec<Row>>> {
        let connection = self.connected().await?;
        let mut sets = Vec::new();
        for set in batch.chunk_by(|write, next| write.query.joins(&next.query)) {
            let queries = set.iter().map(|write| &write.query).collect::<Vec<_>>();
            sets.push((connection.prepare(queries[0]).await?, queries));
        }
        let writes = join_all(
            sets.iter()
                .map(|(statement, queries)| connection.run_prepared(queries, statement.as_ref())),
        );
        let (begun, (written, committed)) = match sets.len() {
            1 => (Ok(()), (writes.await, Ok(()))),
            // Polled in this order, and so sent in it.
            _ => {
                let all = join(writes, connection.execute("COMMIT"));
                join(connection.execute("BEGIN"), all).await
            }
        };
        begun?;
        let mut answers = Vec::with_capacity(batch.len());
        for (rows, (_, queries)) in written.into_iter().zip(&sets) {
            match queries.len() {
                1 => answers.push(rows?),
                // Each row that was written has one in the answer.
                count => {
                    let rows = rows?;
                    if rows.len() != count {
                        return Err(SqlError::corrupt("rows that were written have no answer"));
                    }
                    answers.extend(rows.into_iter().map(|row| vec![row]));
                }
            }
        }
        // The commit of a transaction that has failed succeeds, and rolls back.
        committed.map(|()| answers)
    }

    /// One write, again if it was in another's way or if its connection ended: writes may be repeated.
    async fn alone(&mut self, query: &Query, mut is_repeated: bool) -> Result<Written> {
        let (begun, mut attempt) = (Instant::now(), 1);
        loop {
            let result = match self.connected().await {
                Ok(connection) => connection.run(query).await,
                Err(error) => Err(error),
            };
            let error = match result {
                Ok(rows) => return Ok(Written { rows, is_repeated }),
                Err(error) => error,
            };
            let is_late = begun.elapsed() >= self.server.operation_timeout;
            if !error.may_repeat() || is_late || attempt >= ATTEMPTS_MAX {
                return Err(error);
            }
            is_repeated |= error.kind == ErrorKind::Lost;
            sleep(PAUSE * attempt).await;
            attempt += 1;
        }
    }

    async fn connected(&mut self) -> Result<&Connection> {
        if self.connection.as_ref().is_none_or(Connection::is_closed) {
            self.connection = Some(self.server.connect().await?);
        }
        Ok(self.connection.as_ref().expect("it was opened"))
    }
}
