//! The embedded engine: SQLite files in a data directory, nothing to install.
//!
//! - `router.db` holds the router table and the feeds, `messages_YYYY_MM.db` the message table of a month, so that
//!   dropping a month is removing a file. `lock` keeps a second process out.
//! - **Writes** go through one bounded queue to one thread, which commits what has queued up in one
//!   transaction a file (`writer`). WAL with `synchronous=FULL`: a commit that returned is on disk.
//! - **Reads** run on the thread that asks, on a few connections (`readers`).
//! - **Expired messages** are never handed out. They are deleted when their user agent fetches, those
//!   that the fetch came across; what an absent agent leaves goes with its month.
//!
//! Architecture Invariant: only the writer thread changes a file once the store is open.
//!
//! Architecture Invariant: no file is ever created where one is expected. A missing, foreign or
//! damaged file is an error, not an empty table.

mod channels;
mod columns;
mod copy_table;
mod error;
mod feeds;
mod files;
mod inactive_users;
mod maintenance;
mod messages;
mod month_counts;
mod month_list;
mod notifications;
mod preflight;
mod readers;
mod router;
mod row_estimate;
mod schema;
mod tables;
mod write_connections;
mod writer;

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::thread::available_parallelism;

use rusqlite::Connection;
use state_machine::{MessageId, Month, Time, Uaid};

pub use self::error::OpenError;
pub use self::files::DirLock;
use self::files::{DataDir, FileKey, MonthFiles};
use self::readers::Readers;
use self::write_connections::WriteConnections;
use self::writer::{Target, Writer};
use crate::store::StoreFuture;

/// The bounds of an embedded store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddedOptions {
    /// Writes that may wait for the writer; more are answered [`StoreError::Busy`].
    pub write_queue_max: usize,
    /// Writes committed together at most: bounds how long the first of them waits for the last.
    pub write_batch_max: usize,
    /// Reads that can run at the same time.
    pub readers: usize,
    /// Months that the writer, and each reader, keeps open at most; one more is opened in place of
    /// the one that was opened the longest time ago.
    pub months_open_max: usize,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self {
            write_queue_max: 4096,
            write_batch_max: 1024,
            readers: available_parallelism().map_or(4, usize::from).clamp(2, 8),
            months_open_max: 3,
        }
    }
}

/// A store in a directory of this machine.
///
/// Dropping it without [`Store::close`] loses nothing that was answered: the writer finishes what
/// is queued and then lets go of the directory, without anybody waiting for it.
pub struct Embedded {
    dir: Arc<DataDir>,
    months: Arc<MonthFiles>,
    readers: Arc<Readers>,
    writer: Writer,
}

impl Embedded {
    /// Whether a store was ever opened in the directory.
    pub fn exists(dir: &Path) -> bool {
        dir.join(FileKey::Router.to_string()).exists()
    }

    /// Opens the data directory, making it (mode 0700) and its files (0600) where there are none.
    ///
    /// Blocks while it checks and, if need be, migrates each file.
    pub fn open(dir: &Path, options: &EmbeddedOptions) -> Result<Self, OpenError> {
        let EmbeddedOptions { readers, months_open_max, .. } = *options;
        let (dir, lock, months) = DataDir::open(dir)?;
        let (dir, months) = (Arc::new(dir), Arc::new(months));
        let readers = Readers::new(dir.clone(), months.clone(), readers, months_open_max);
        let readers = Arc::new(readers);
        let files =
            WriteConnections::new(dir.clone(), months.clone(), readers.clone(), months_open_max);
        let writer = Writer::start(files, lock, options);
        Ok(Self { dir, months, readers, writer: writer.map_err(OpenError::Thread)? })
    }

    fn write_router<T: Send + 'static>(
        &self,
        uaid: Uaid,
        statements: impl Fn(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> StoreFuture<T> {
        let target = Target::File(FileKey::Router);
        self.writer
            .submit(Some(uaid), target, move |files| files.write(FileKey::Router, &statements))
    }

    fn write_month<T: Send + 'static>(
        &self,
        uaid: Uaid,
        month: Month,
        statements: impl Fn(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> StoreFuture<T> {
        let key = FileKey::Month(month);
        self.writer
            .submit(Some(uaid), Target::File(key), move |files| files.write(key, &statements))
    }

    /// Runs the statements in each of the months that has a table. Answers how many
    /// rows they changed.
    fn write_months(
        &self,
        uaid: Uaid,
        months: Vec<Month>,
        statements: impl Fn(&Connection) -> rusqlite::Result<usize> + Send + 'static,
    ) -> StoreFuture<usize> {
        let target = match months[..] {
            [month] => Target::File(FileKey::Month(month)),
            _ => Target::ManyFiles,
        };
        self.writer.submit(Some(uaid), target, move |files| {
            let write = |month: &Month| files.write_if_there(*month, &statements).transpose();
            months.iter().filter_map(write).sum()
        })
    }

    /// Nobody waits for this, and where the queue is full it is left to the next fetch.
    fn sweep(&self, uaid: Uaid, month: Month, stretch: RangeInclusive<MessageId>, now: Time) {
        drop(self.write_month(uaid, month, move |conn| messages::sweep(conn, uaid, &stretch, now)));
    }
}
