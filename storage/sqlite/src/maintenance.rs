//! The contract of maintenance: the file and the statements of each method.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::{io, iter};

use futures_util::TryFutureExt;
use state_machine::{LastConnect, Month, RouterRecord, Time, Uaid};
use storage::copied_rows::{CopiedPage, CopiedRow};
use storage::data_dir::FileKey;
use storage::maintenance::{
    Capacity, CopyProgress, InactiveUsers, MarkedUser, MonthRange, PreflightCheck, RecordsByMonth,
    RepairClock, SnapshotStep, StoreAdmin, Table, TableStatus, Throughput, WaitingPage,
};
use storage::record_row::RecordRow;
use storage::rules::{finished, records};
use storage::store::{Cursor, StoreError, StoreFuture, answered};

use crate::files::DataDir;
use crate::record_cache::WrittenRecords;
use crate::router_file::RouterFile;
use crate::writer::{Progress, Target};
use crate::{
    Embedded, copied_rows, copy_table, id_floor, inactive_users, messages, preflight, router,
    row_estimate, waiting_counts,
};

impl StoreAdmin for Embedded {
    fn preflight(&self, months: BTreeSet<Month>) -> StoreFuture<Vec<PreflightCheck>> {
        let keys: Vec<_> =
            iter::once(FileKey::Router).chain(months.into_iter().map(FileKey::Month)).collect();
        let mut checks: Vec<_> = keys.iter().map(|key| self.try_reading(*key)).collect();
        let (written, dir) = (self.try_writing(keys), Arc::clone(&self.dir));
        Box::pin(async move {
            let written = written.await.map_err(|error| match error {
                StoreError::NoSpace => StoreError::Failed(without_space(&dir)),
                error => error,
            });
            checks.push(check("write each file".to_owned(), written)?);
            Ok(checks)
        })
    }

    fn tables(&self) -> StoreFuture<Vec<TableStatus>> {
        let router = [Table::Router, Table::Notifications].into_iter();
        let months = self.months.list().into_iter().map(Table::Messages);
        answered(router.chain(months).map(|table| self.status(table)).collect())
    }

    fn records_by_month(&self, after: Option<Cursor>) -> StoreFuture<RecordsByMonth> {
        self.read(FileKey::Router, |conn| {
            finished(records::count(&RouterFile(conn), after.as_ref()))
        })
    }

    fn waiting_page(&self, month: Month, after: Option<Cursor>) -> StoreFuture<WaitingPage> {
        self.read(FileKey::Month(month), |conn| waiting_counts::page(conn, after.as_ref()))
    }

    fn delete_expired(&self, expired_at: Time) -> StoreFuture<u64> {
        let (mut months, mut deleted) = (self.months.list(), 0);
        self.writer.submit_paged(None, Target::ManyFiles, move |files| {
            let Some(month) = months.last() else { return Ok(Progress::Done(deleted)) };
            let page =
                files.write_if_there(*month, |conn| messages::delete_expired(conn, expired_at))?;
            let (rows, has_more) = page.unwrap_or_default();
            deleted += rows as u64;
            if !has_more {
                months.pop();
            }
            Ok(if months.is_empty() { Progress::Done(deleted) } else { Progress::Page })
        })
    }

    fn create_record(&self, record: RouterRecord) -> StoreFuture<bool> {
        let record = RecordRow::from(record);
        self.write_record(record.uaid, move |conn| router::write(conn, &record, false))
    }

    fn inactive_users(
        &self,
        seen: MonthRange,
        after: Option<Cursor>,
    ) -> StoreFuture<InactiveUsers> {
        self.read(FileKey::Router, |conn| inactive_users::find(conn, seen, after.as_ref()))
    }

    fn mark_dropped(
        &self,
        uaid: Uaid,
        seen: Option<LastConnect>,
    ) -> StoreFuture<Option<MarkedUser>> {
        self.write_record(uaid, move |conn| {
            finished(records::mark_dropped(&RouterFile(conn), uaid, seen))
        })
    }

    /// A page that is rolled back leaves its users to the next call.
    fn delete_rows(&self, uaids: Vec<Uaid>, month: Month) -> StoreFuture<bool> {
        let (mut done, mut any) = (0, false);
        self.writer.submit_paged(None, Target::File(FileKey::Month(month)), move |files| {
            let page = |conn: &_| inactive_users::delete_page(conn, &uaids[done..]);
            let Some((users, rows)) = files.write_if_there(month, page)? else {
                return Ok(Progress::Done(false));
            };
            (done, any) = (done + users, any || rows > 0);
            Ok(if done < uaids.len() { Progress::Page } else { Progress::Done(any) })
        })
    }

    /// All in one transaction: SQLite has no limit of rows per request.
    fn delete_uaids(&self, uaids: Vec<Uaid>) -> StoreFuture<()> {
        self.writer.submit(None, Target::File(FileKey::Router), move |files| {
            let delete = |conn: &_| inactive_users::delete_marked(conn, &uaids);
            files.write_records(WrittenRecords::Of(&uaids), delete)
        })
    }

    fn has_rows(&self, month: Month) -> StoreFuture<bool> {
        self.read(FileKey::Month(month), |conn| {
            row_estimate::rows_up_to(conn, row_estimate::CHANNELS, 1).map(|rows| rows > 0)
        })
    }

    fn copy_rows(
        &self,
        from: Month,
        to: Month,
        after: Option<Cursor>,
    ) -> StoreFuture<CopyProgress> {
        if from == to {
            return answered(Ok(CopyProgress::default()));
        }
        self.writer.submit(None, Target::Exclusive, move |files| {
            files.copy_between(from, to, |from, to| copy_table::copy(from, to, after.as_ref()))
        })
    }

    fn move_records(
        &self,
        from: Month,
        to: Month,
        after: Option<Cursor>,
    ) -> StoreFuture<CopyProgress> {
        self.writer.submit(None, Target::File(FileKey::Router), move |files| {
            let rename = |conn: &_| {
                finished(records::rename_month(&RouterFile(conn), from, to, after.as_ref()))
            };
            files.write_records(WrittenRecords::All, rename)
        })
    }

    fn repair_records(
        &self,
        clock: RepairClock,
        after: Option<Cursor>,
    ) -> StoreFuture<CopyProgress> {
        self.writer.submit(None, Target::File(FileKey::Router), move |files| {
            let repair =
                |conn: &_| finished(records::repair(&RouterFile(conn), clock, after.as_ref()));
            files.write_records(WrittenRecords::All, repair)
        })
    }

    fn read_rows(&self, table: Table, after: Option<Cursor>) -> StoreFuture<CopiedPage> {
        self.read(file_of(table), |conn| copied_rows::read(conn, table, after.as_ref()))
    }

    fn count_rows(&self, table: Table) -> StoreFuture<u64> {
        self.read(file_of(table), |conn| copied_rows::count(conn, table))
    }

    fn write_rows(&self, table: Table, rows: Arc<Vec<CopiedRow>>) -> StoreFuture<()> {
        let key = file_of(table);
        self.writer.submit(None, Target::File(key), move |files| {
            let write = |conn: &_| rows.iter().try_for_each(|row| copied_rows::write(conn, row));
            match key {
                FileKey::Router => files.write_records(WrittenRecords::All, write),
                FileKey::Month(_) => files.write(key, write),
            }
        })
    }

    fn set_throughput(&self, _month: Month, _throughput: Throughput) -> StoreFuture<()> {
        answered(Err(StoreError::Unsupported(
            "tables of the embedded store have no throughput: they give what the machine can do",
        )))
    }

    fn snapshot(&self, on_step: SnapshotStep) -> StoreFuture<()> {
        let begun = self.writer.submit(None, Target::Exclusive, |files| files.snapshot());
        let (dir, free_bytes_min) = (Arc::clone(&self.dir), self.free_bytes_min());
        Box::pin(async move {
            let snapshot = begun.await?;
            let copy = move || snapshot.copy(&dir, free_bytes_min, on_step);
            let copied = tokio::task::spawn_blocking(copy).await;
            copied.unwrap_or_else(|error| Err(StoreError::Failed(error.to_string())))
        })
    }

    fn key_fingerprints(&self) -> StoreFuture<BTreeSet<String>> {
        answered(Err(StoreError::Unsupported(NO_OTHER_NODES)))
    }

    fn put_key_fingerprints(
        &self,
        _before: BTreeSet<String>,
        _after: BTreeSet<String>,
    ) -> StoreFuture<bool> {
        answered(Err(StoreError::Unsupported(NO_OTHER_NODES)))
    }

    fn id_floor(&self) -> StoreFuture<Time> {
        let floor = self.read(FileKey::Router, id_floor::read);
        Box::pin(floor.map_ok(|floor| floor.unwrap_or(Time(0))))
    }

    fn raise_id_floor(&self, floor: Time) -> StoreFuture<()> {
        self.write(None, FileKey::Router, move |conn| id_floor::raise(conn, floor))
    }
}

impl Embedded {
    fn try_reading(&self, key: FileKey) -> PreflightCheck {
        let statement = match key {
            FileKey::Router => row_estimate::RECORDS,
            FileKey::Month(_) => row_estimate::MESSAGES,
        };
        let read = self.readers.read(key, |conn| row_estimate::rows_up_to(conn, statement, 1));
        let outcome = read.map(|_rows| ()).map_err(|error| error.to_string());
        PreflightCheck { what: format!("read {key}"), outcome }
    }

    /// One job, so that it fits into the shortest queue. It ends at the first file that fails; the
    /// error names it.
    fn try_writing(&self, keys: Vec<FileKey>) -> StoreFuture<()> {
        self.writer.submit(None, Target::ManyFiles, move |files| {
            keys.iter().try_for_each(|key| {
                files.write(*key, |conn| match key {
                    FileKey::Router => preflight::try_router(conn),
                    FileKey::Month(_) => preflight::try_month(conn),
                })
            })
        })
    }

    fn free_bytes_min(&self) -> u64 {
        self.space.state().map_or(0, |space| space.free_bytes_min)
    }

    fn status(&self, table: Table) -> Result<TableStatus, StoreError> {
        let key = file_of(table);
        let statements = match table {
            Table::Router | Table::Sequences | Table::Feeds => &[row_estimate::RECORDS][..],
            Table::Notifications => &[row_estimate::NOTIFICATIONS][..],
            Table::Messages(_) => &[row_estimate::CHANNELS, row_estimate::MESSAGES][..],
        };
        let count = |conn: &_| statements.iter().map(|s| row_estimate::rows(conn, s)).sum();
        let items = self.readers.read(key, count)?.unwrap_or(0);
        let bytes = match table {
            Table::Notifications => items * NOTIFICATION_BYTES,
            _ => self.dir.bytes(key).map_err(|error| unknown_size(key, &error))?,
        };
        let (name, state) = (key.to_string(), "active".to_owned());
        Ok(TableStatus { table, name, state, items, bytes, capacity: Capacity::Unmetered })
    }
}

fn file_of(table: Table) -> FileKey {
    match table {
        Table::Messages(month) => FileKey::Month(month),
        Table::Router | Table::Notifications | Table::Sequences | Table::Feeds => FileKey::Router,
    }
}

const NO_OTHER_NODES: &str =
    "the embedded store has one node, whose keys have no other node's to match";

/// The columns of one notification. The size of the router's file includes them.
const NOTIFICATION_BYTES: u64 = 16 + 16 + 8;

/// The error of a file is the result of a check; a busy or closed store is an error of the call.
fn check(what: String, done: Result<(), StoreError>) -> Result<PreflightCheck, StoreError> {
    let outcome = match done {
        Err(StoreError::Failed(reason)) => Err(reason),
        Err(error @ StoreError::NoSuchMonth(_)) => Err(error.to_string()),
        done => Ok(done?),
    };
    Ok(PreflightCheck { what, outcome })
}

fn without_space(dir: &DataDir) -> String {
    let free_bytes = dir.free_bytes().map_or("unknown".to_owned(), |bytes| bytes.to_string());
    format!("{} (free bytes: {free_bytes})", StoreError::NoSpace)
}

fn unknown_size(key: FileKey, error: &io::Error) -> StoreError {
    StoreError::Failed(format!("cannot look at {key}: {error}"))
}
