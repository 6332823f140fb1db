//! Writes that share a commit and a round trip.
//!
//! Each lane is a connection with a queue. A lane takes what has queued and sends it as one transaction, pipelined with
//! its commit, sorted by agent: all nodes lock rows in one order. If a statement fails, nothing of it is done, and each is
//! sent alone, so that it fails alone. The queue of the engine (`storage::queue`) keeps the order of an agent's writes and
//! bounds how many there are.

use std::sync::Arc;

use futures_util::future::{join, join_all};
use state_machine::Uaid;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use crate::connection::{Connection, PAUSE, Server};
use crate::error::{ErrorKind, Result, SqlError};
use crate::sql::{Query, Row};

/// Writes in one transaction.
const BATCH_MAX: usize = 200;

/// Attempts of a write that is in the way of another node's, or whose connection ended.
const ATTEMPTS_MAX: u32 = 4;

pub(crate) struct Lanes(Vec<mpsc::UnboundedSender<Write>>);

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
    pub(crate) fn start(server: &Arc<Server>, count: usize) -> Self {
        let start = |_| {
            let (queue, writes) = mpsc::unbounded_channel();
            let lane = Lane { server: server.clone(), connection: None };
            drop(tokio::spawn(lane.serve(writes)));
            queue
        };
        Self((0..count.max(1)).map(start).collect())
    }

    pub(crate) async fn write(&self, uaid: Uaid, query: Query) -> Result<Written> {
        let (reply, answer) = oneshot::channel();
        let at = usize::from(uaid.0[15]) % self.0.len();
        // It is open as long as this engine.
        let _sent = self.0[at].send(Write { uaid, query, reply });
        answer.await.unwrap_or_else(|_| Err(SqlError::lost()))
    }
}

struct Lane {
    server: Arc<Server>,
    connection: Option<Connection>,
}

impl Lane {
    async fn serve(mut self, mut queue: mpsc::UnboundedReceiver<Write>) {
        let mut batch = Vec::new();
        while queue.recv_many(&mut batch, BATCH_MAX).await > 0 {
            batch.sort_by_key(|write| write.uaid);
            let lost = match batch.len() {
                1 => false,
                _ => match self.together(&batch).await {
                    Ok(answers) => {
                        for (write, rows) in batch.drain(..).zip(answers) {
                            let _unread =
                                write.reply.send(Ok(Written { rows, is_repeated: false }));
                        }
                        continue;
                    }
                    Err(error) => error.kind == ErrorKind::Lost,
                },
            };
            let mut away = None;
            for write in batch.drain(..) {
                let written = match &away {
                    Some(error) => Err(SqlError::clone(error)),
                    None => self.alone(&write.query, lost).await,
                };
                // The others of this batch do not wait in turn for a server that is away.
                away = written.as_ref().err().filter(|error| error.is_away()).cloned();
                let _unread = write.reply.send(written);
            }
        }
    }

    /// All in one transaction; none of them if one fails.
    async fn together(&mut self, batch: &[Write]) -> Result<Vec<Vec<Row>>> {
        let connection = self.connected().await?;
        let mut statements = Vec::with_capacity(batch.len());
        for write in batch {
            statements.push(connection.prepare(&write.query).await?);
        }
        let writes = batch.iter().zip(&statements);
        let writes =
            join_all(writes.map(|(write, statement)| {
                connection.run_prepared(&write.query, statement.as_ref())
            }));
        // Polled in this order, and so sent in it.
        let sent = join(connection.execute("BEGIN"), join(writes, connection.execute("COMMIT")));
        let (begun, (written, committed)) = sent.await;
        // The commit of a transaction that has failed succeeds, and rolls back.
        let written = written.into_iter().collect::<Result<Vec<_>, _>>();
        begun.and(written).and_then(|written| committed.map(|()| written))
    }

    /// One write, again if it was in another's way or if its connection ended: writes may be repeated.
    async fn alone(&mut self, query: &Query, mut is_repeated: bool) -> Result<Written> {
        let mut attempt = 1;
        loop {
            let result = match self.connected().await {
                Ok(connection) => connection.run(query).await,
                Err(error) => Err(error),
            };
            let error = match result {
                Ok(rows) => return Ok(Written { rows, is_repeated }),
                Err(error) => error,
            };
            if !error.may_repeat() || attempt >= ATTEMPTS_MAX {
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
