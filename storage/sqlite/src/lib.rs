//! The embedded engine: SQLite files in a data directory, nothing to install.
//!
//! - `router.db` holds the router table and the feeds, `messages_YYYY_MM.db` the message table of a
//!   month, so that dropping a month removes a file. A lock on the directory excludes a
//!   second process.
//! - **Writes** pass through one bounded queue to one thread, which commits all queued jobs in one
//!   transaction per file (`writer`). WAL with `synchronous=FULL`: a returned commit is on disk.
//! - **Reads** run on the calling thread, on a few connections (`readers`).
//! - **Expired messages** are never returned. A fetch deletes those that it skipped, and a sweep
//!   those of absent agents. Their space in the file is reused.
//! - **Messages that wait** are counted for each user agent and channel by triggers (`waiting_counts`).
//!
//! Architecture Invariant: only the writer thread changes a file once the store is open.
//!
//! Architecture Invariant: no file is ever created where one is expected. A missing, foreign or
//! damaged file is an error, not an empty table.

#![cfg_attr(
    test,
    expect(clippy::disallowed_methods, reason = "tests write files that no power loss meets")
)]

mod before_migration;
mod channels;
mod columns;
mod connection;
mod copied_rows;
mod copy_table;
mod error;
mod feed_rows;
mod feeds;
mod files;
mod id_floor;
mod inactive_users;
mod maintenance;
mod messages;
mod month_list;
mod move_messages;
mod notifications;
mod page_copy;
mod preflight;
mod read_check;
mod readers;
mod receipts;
mod record_cache;
mod router;
mod router_file;
mod row_estimate;
mod schema;
mod snapshot;
mod space;
mod sql_rows;
mod statements;
mod store;
mod unwritten;
mod upgrade;
mod waiting_counts;
mod write_connections;
mod writer;

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::available_parallelism;
use std::time::Duration;

use futures_util::TryFutureExt;
use rusqlite::Connection;
use state_machine::{MessageId, Month, Time, Uaid};
use storage::data_dir::FileKey;
use storage::registration::NewRecord;
use storage::store::{StoreError, StoreFuture, answered};
use storage::upgrade::UpgradeWatch;
use storage::waiting_limits::WaitingLimits;

pub use self::error::OpenError;
use self::error::WriterError;
use self::files::{DataDir, MonthFiles};
use self::readers::Readers;
use self::record_cache::WrittenRecords;
pub use self::snapshot::check_restored;
use self::space::SpaceReserve;
use self::unwritten::UnwrittenRegistrations;
use self::write_connections::WriteConnections;
use self::writer::{Progress, Target, Writer};

/// The limits of an embedded store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddedOptions {
    /// Writes that may wait for the writer; a further one is
    /// [`StoreError::Busy`](storage::StoreError::Busy).
    pub write_queue_max: usize,
    /// Writes in one commit: bounds how long the first of them waits.
    pub write_batch_max: usize,
    /// Time after which a commit takes no further write. A commit has one write at least.
    pub write_batch_time_max: Duration,
    /// Reads that may run concurrently.
    pub readers: usize,
    /// Month files that the writer, and each reader, keeps open; the oldest is closed for a further
    /// one.
    pub months_open_max: usize,
    /// Bounds of the messages that wait.
    pub waiting: WaitingLimits,
    /// With fewer free bytes on the disk, messages are refused, and with fewer than half of it new
    /// records and channels; 0 means no limit.
    pub free_bytes_min: u64,
    /// Whether files of an older version are copied before they are changed.
    pub migration_copy: bool,
}

impl EmbeddedOptions {
    /// Options for a queue of `write_queue_max` writes, without bounds of waiting messages.
    pub fn new(write_queue_max: usize) -> Self {
        Self {
            write_queue_max,
            write_batch_max: 1024,
            write_batch_time_max: Duration::from_millis(25),
            readers: available_parallelism().map_or(4, usize::from).clamp(2, 8),
            months_open_max: 3,
            waiting: WaitingLimits::NONE,
            free_bytes_min: 0,
            migration_copy: false,
        }
    }
}

/// A store in a directory of this machine.
///
/// Dropping it without [`Store::close`](storage::Store::close) loses no write: in the background the
/// writer finishes the queue and then releases the directory.
pub struct Embedded {
    dir: Arc<DataDir>,
    months: Arc<MonthFiles>,
    readers: Arc<Readers>,
    unwritten: Arc<UnwrittenRegistrations>,
    space: Arc<SpaceReserve>,
    writer: Writer,
    waiting: WaitingLimits,
    /// Messages that were deleted for another one.
    gave_way: Arc<AtomicU64>,
}

impl Embedded {
    /// Opens the data directory, and creates it (mode 0700) and its files (0600) if they do not
    /// exist.
    ///
    /// Blocks while it checks each file and migrates it to the present schema.
    pub fn open(dir: &Path, options: &EmbeddedOptions) -> Result<Self, OpenError> {
        Self::open_watched(dir, options, UpgradeWatch::NONE)
    }

    /// The same. The watch follows the migration and the copies before it.
    pub fn open_watched(
        dir: &Path,
        options: &EmbeddedOptions,
        watch: UpgradeWatch<'_>,
    ) -> Result<Self, OpenError> {
        let EmbeddedOptions { readers, months_open_max, free_bytes_min, waiting, .. } = *options;
        let migration_copy = options.migration_copy.then_some(free_bytes_min);
        let (dir, lock, months) = DataDir::open(dir, migration_copy, watch)?;
        let (dir, months) = (Arc::new(dir), Arc::new(months));
        let readers = Readers::new(dir.clone(), months.clone(), readers, months_open_max);
        let readers = Arc::new(readers);
        let unwritten = Arc::<UnwrittenRegistrations>::default();
        let files = WriteConnections::new(
            dir.clone(),
            months.clone(),
            readers.clone(),
            months_open_max,
            unwritten.clone(),
        );
        let writer = Writer::start(files, lock, options).map_err(OpenError::Thread)?;
        let space = Arc::new(SpaceReserve::new(dir.clone(), free_bytes_min));
        let gave_way = Arc::default();
        Ok(Self { dir, months, readers, unwritten, space, writer, waiting, gave_way })
    }

    /// Runs a query on the calling thread. The result is the default if the month has no file.
    fn read<T: Default + Send + 'static>(
        &self,
        key: FileKey,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> StoreFuture<T> {
        answered(self.readers.read(key, query).map(Option::unwrap_or_default))
    }

    /// Queues statements for one file, in the order of the user agent's other writes if there is
    /// one.
    fn write<T: Send + 'static>(
        &self,
        uaid: Option<Uaid>,
        key: FileKey,
        statements: impl Fn(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> StoreFuture<T> {
        self.writer.submit(uaid, Target::File(key), move |files| files.write(key, &statements))
    }

    /// Queues statements for one file, if the disk has space for a message. Counts a refusal.
    fn write_admitted<T: Send + 'static>(
        &self,
        uaid: Uaid,
        key: FileKey,
        statements: impl Fn(&mut WriteConnections) -> Result<T, WriterError> + Send + 'static,
    ) -> StoreFuture<T> {
        let (space, refusals) = (Arc::clone(&self.space), Arc::clone(&self.space));
        let written = self.writer.submit(Some(uaid), Target::File(key), move |files| {
            space.admit()?;
            statements(files)
        });
        Box::pin(written.inspect_err(move |error| {
            if *error == StoreError::NoSpace {
                refusals.count_refused();
            }
        }))
    }

    /// Queues statements for an agent's record, which is written first if it was not yet.
    fn write_record<T: Send + 'static>(
        &self,
        uaid: Uaid,
        statements: impl Fn(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> StoreFuture<T> {
        let unwritten = Arc::clone(&self.unwritten);
        let statements = move |conn: &Connection| {
            if let Some(registration) = unwritten.of(uaid) {
                router::register(conn, &NewRecord::from(&registration))?;
            }
            statements(conn)
        };
        self.writer.submit(Some(uaid), Target::File(FileKey::Router), move |files| {
            files.write_records(WrittenRecords::Of(&[uaid]), &statements)
        })
    }

    /// Runs the statements in each of the months that has a table. Returns the number of changed
    /// rows.
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

    /// Deletes expired messages in the background. With a full queue the next fetch does it.
    fn sweep(&self, uaid: Uaid, month: Month, stretch: RangeInclusive<MessageId>, now: Time) {
        let key = FileKey::Month(month);
        drop(self.writer.submit_paged(Some(uaid), Target::File(key), move |files| {
            let is_more = files.write(key, |conn| messages::sweep(conn, uaid, &stretch, now))?;
            Ok(if is_more { Progress::Page } else { Progress::Done(()) })
        }));
    }
}
