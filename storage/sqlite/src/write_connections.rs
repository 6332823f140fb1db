//! The writer's connections and the transactions open on them.

use std::io::ErrorKind;
use std::iter;
use std::sync::Arc;
use std::time::Instant;

use rusqlite::Connection;
use state_machine::{Month, Uaid};
use storage::data_dir::FileKey;
use storage::store::StoreError;

use crate::connection::{ConnectionRole, empty_log};
use crate::error::{WriterError, is_of_read, write_error};
use crate::files::{DataDir, MonthFiles};
use crate::readers::Readers;
use crate::record_cache::{ChangedRecords, WrittenRecords};
use crate::snapshot::Snapshot;
use crate::statements::run;
use crate::unwritten::{RETRY, UnwrittenRegistrations};
use crate::{month_list, router};

/// The files that the writer thread has open. One transaction per file holds all writes of a batch.
pub(crate) struct WriteConnections {
    dir: Arc<DataDir>,
    pub(crate) months: Arc<MonthFiles>,
    readers: Arc<Readers>,
    /// Opened with the first write, the oldest first.
    open: Vec<OpenFile>,
    /// Files that could not be opened or committed in this batch. They are not tried again before
    /// the next batch, so that a batch waits only once for a locked file.
    failed: Vec<(FileKey, StoreError)>,
    months_open_max: usize,
    unwritten: Arc<UnwrittenRegistrations>,
    /// What the open transaction on the router's file changes.
    changed: ChangedRecords,
    /// Whether a statement of this transaction failed for want of space.
    is_disk_full: bool,
    /// Whether the open transaction on the router's file has receipts of rows that other files delete.
    has_receipts: bool,
}

struct OpenFile {
    key: FileKey,
    conn: Connection,
    in_transaction: bool,
}

impl OpenFile {
    /// Rolls back after an error of a full disk. Closing rolls back too, whatever state another error left the connection
    /// in. But the last connection to a file removes its shared memory, and a full disk has no room for a new one, so
    /// that nothing could be read. Returns whether the connection can be used.
    fn roll_back(&mut self) -> bool {
        self.in_transaction = false;
        self.conn.is_autocommit() || run(&self.conn, "ROLLBACK").is_ok()
    }
}

impl WriteConnections {
    pub(crate) fn new(
        dir: Arc<DataDir>,
        months: Arc<MonthFiles>,
        readers: Arc<Readers>,
        months_open_max: usize,
        unwritten: Arc<UnwrittenRegistrations>,
    ) -> Self {
        let months_open_max = months_open_max.max(1);
        Self {
            dir,
            months,
            readers,
            open: Vec::new(),
            failed: Vec::new(),
            months_open_max,
            unwritten,
            changed: ChangedRecords::default(),
            is_disk_full: false,
            has_receipts: false,
        }
    }

    /// Runs statements in the batch's transaction on a file.
    pub(crate) fn write<T>(
        &mut self,
        key: FileKey,
        statements: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, WriterError> {
        let at = self.begin(key)?;
        statements(&self.open[at].conn).map_err(|error| self.broken(key, &error))
    }

    /// As [`WriteConnections::write`], for every statement that changes router records.
    pub(crate) fn write_records<T>(
        &mut self,
        changed: WrittenRecords<'_>,
        statements: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, WriterError> {
        self.changed.add(changed);
        self.write(FileKey::Router, statements)
    }

    /// Writes receipts whose messages are deleted or replaced in another file in the same batch. They are on disk before
    /// those files are committed, and if they cannot be written, nor is any of the batch.
    pub(crate) fn write_receipts<T>(
        &mut self,
        statements: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, WriterError> {
        self.has_receipts = true;
        self.write(FileKey::Router, statements)
    }

    /// As [`WriteConnections::write`]; none if that month has no file.
    pub(crate) fn write_if_there<T>(
        &mut self,
        month: Month,
        statements: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, WriterError> {
        if self.months.contains(month) {
            self.write(FileKey::Month(month), statements).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Runs statements that read one month and write to another.
    pub(crate) fn copy_between<T>(
        &mut self,
        from: Month,
        to: Month,
        copy: impl FnOnce(&Connection, &Connection) -> rusqlite::Result<T>,
    ) -> Result<T, WriterError> {
        let (from, to) = (FileKey::Month(from), FileKey::Month(to));
        self.begin(from)?;
        self.begin(to)?;
        let copied = copy(self.connection(from), self.connection(to));
        copied.map_err(|error| self.broken(to, &error))
    }

    pub(crate) fn make_month(&mut self, month: Month) -> Result<(), WriterError> {
        if self.months.contains(month) {
            return Ok(());
        }
        let made = self.dir.make(FileKey::Month(month));
        made.map_err(|error| WriterError::Refused(StoreError::Failed(error.to_string())))?;
        self.months.insert(month);
        self.write(FileKey::Router, |conn| month_list::add(conn, month))
    }

    /// Begins a snapshot of all files. The transactions of the batches before are committed.
    pub(crate) fn snapshot(&self) -> Result<Snapshot, WriterError> {
        let months = self.months.list().into_iter().map(FileKey::Month);
        Snapshot::begin(&self.dir, iter::once(FileKey::Router).chain(months))
    }

    /// Writes a row, which fails on a disk that is full or read-only. Takes the lock of each file that messages are
    /// stored in, which fails if another program holds it or the file was removed.
    pub(crate) fn check(&mut self) -> Result<(), WriterError> {
        for key in self.months.checked() {
            if !self.dir.is_there(key) {
                let gone = format!("{key} was removed while the store was open");
                return Err(WriterError::Refused(StoreError::Failed(gone)));
            }
            self.write(key, |_| Ok(()))?;
        }
        self.write(FileKey::Router, router::check)
    }

    /// Closes every connection first, so that unlinking the file frees its space, and so that
    /// SQLite cannot later remove the write-ahead log of a new file of the same name.
    pub(crate) fn drop_month(&mut self, month: Month) -> Result<bool, WriterError> {
        let key = FileKey::Month(month);
        if !self.months.contains(month) {
            return Ok(false);
        }
        self.write(FileKey::Router, |conn| month_list::remove(conn, month))?;
        self.commit(FileKey::Router)?;
        self.months.remove(month);
        self.readers.forget(key);
        self.open.retain(|file| file.key != key);
        match self.dir.remove(key) {
            Ok(()) => Ok(true),
            Err(error) => {
                self.months.insert(month);
                let text = format!("cannot remove {key}: {error}");
                Err(WriterError::Refused(StoreError::Failed(text)))
            }
        }
    }

    /// Commits every open transaction, with one sync per file and the router's file first, and records failures for
    /// [`WriteConnections::failure`].
    pub(crate) fn commit_all(&mut self) {
        let mut written: Vec<FileKey> =
            self.open.iter().filter(|file| file.in_transaction).map(|file| file.key).collect();
        written.sort_by_key(|key| *key != FileKey::Router);
        let has_receipts = std::mem::take(&mut self.has_receipts);
        for key in written {
            let committed = self.commit(key);
            if let Err(WriterError::Refused(error)) = committed
                && key == FileKey::Router
                && has_receipts
            {
                return self.give_up(&error);
            }
        }
    }

    /// Rolls the other files back, whose rows have no receipts on disk.
    fn give_up(&mut self, error: &StoreError) {
        let open: Vec<FileKey> =
            self.open.iter().filter(|file| file.in_transaction).map(|file| file.key).collect();
        self.failed.extend(open.into_iter().map(|key| (key, error.clone())));
        self.is_disk_full = *error == StoreError::NoSpace;
        self.roll_back_all();
    }

    pub(crate) fn roll_back_all(&mut self) {
        self.has_receipts = false;
        let is_disk_full = std::mem::take(&mut self.is_disk_full);
        self.open.retain_mut(|file| !file.in_transaction || (is_disk_full && file.roll_back()));
    }

    /// Why the batch's writes to the file, or to any file if none is named, are not on disk.
    pub(crate) fn failure(&self, key: Option<FileKey>) -> Option<&StoreError> {
        let concerned = |(failed, _): &&(FileKey, StoreError)| key.is_none_or(|key| key == *failed);
        self.failed.iter().find(concerned).map(|(_, error)| error)
    }

    /// Writes a page of the registrations that the disk had no space for, in a transaction of its own. Returns whether
    /// it could be written.
    pub(crate) fn write_unwritten(&mut self, now: Instant) -> bool {
        let page = self.unwritten.due(now);
        if page.is_empty() {
            return false;
        }
        let register = |conn: &_| {
            page.iter().try_for_each(|it| router::register(conn, &it.into()).map(|_result| ()))
        };
        let uaids: Vec<Uaid> = page.iter().map(|it| it.uaid).collect();
        let written = self.write_records(WrittenRecords::Of(&uaids), register);
        let is_written = written.and_then(|()| self.commit(FileKey::Router)).is_ok();
        if is_written {
            self.unwritten.written(&page);
        } else {
            self.roll_back_all();
            self.unwritten.failed(now);
        }
        is_written
    }

    /// Clears the failures and the changed records, and closes the oldest months beyond the limit.
    pub(crate) fn end_batch(&mut self) {
        self.failed.clear();
        self.changed.clear();
        let is_month = |file: &OpenFile| file.key != FileKey::Router;
        while self.open.iter().filter(|file| is_month(file)).count() > self.months_open_max {
            let oldest = self.open.iter().position(is_month).expect("more than one is open");
            self.open.remove(oldest);
        }
    }

    /// Checkpoints and closes all files, also the readers' connections.
    pub(crate) fn close(mut self) -> Result<(), StoreError> {
        // Without a pause after a failed attempt.
        while self.write_unwritten(Instant::now() + RETRY) {}
        self.readers.close();
        let mut closed = Ok(());
        for OpenFile { key, conn, .. } in self.open {
            // A log that another program reads stays, and the next start empties it.
            let emptied = empty_log(&conn).and_then(|_| conn.close().map_err(|(_, error)| error));
            let emptied =
                emptied.map_err(|error| StoreError::Failed(format!("cannot close {key}: {error}")));
            closed = closed.and(emptied);
        }
        closed
    }

    /// Finds or opens a file and begins its transaction. Returns its index in `open`.
    fn begin(&mut self, key: FileKey) -> Result<usize, WriterError> {
        let at = self.open.iter().position(|file| file.key == key);
        if let Some(at) = at.filter(|at| self.open[*at].in_transaction) {
            return Ok(at);
        }
        if let FileKey::Month(month) = key
            && !self.months.contains(month)
        {
            return Err(WriterError::Refused(StoreError::NoSuchMonth(month)));
        }
        if let Some(error) = self.failure(Some(key)) {
            return Err(WriterError::Refused(error.clone()));
        }
        let at = match at {
            Some(at) => at,
            None => {
                self.open_file(key).map_err(|error| WriterError::Refused(self.note(key, error)))?
            }
        };
        let conn = &self.open[at].conn;
        match conn.prepare_cached("BEGIN IMMEDIATE").and_then(|mut s| s.execute([])) {
            Ok(_) => self.open[at].in_transaction = true,
            Err(error) => return Err(WriterError::Refused(self.note_failure(key, &error))),
        }
        Ok(at)
    }

    /// Opens a file, and syncs the directory: SQLite may have made its log with it, and ignores errors of that sync. If it
    /// fails, all connections to the file are closed, so that the next one makes another log.
    fn open_file(&mut self, key: FileKey) -> Result<usize, StoreError> {
        let conn = self.dir.connect(key, ConnectionRole::Writer);
        let conn = conn.map_err(|error| self.write_error(key, &error))?;
        if let Err(error) = self.dir.sync() {
            drop(conn);
            self.readers.forget(key);
            return Err(match error.kind() {
                ErrorKind::StorageFull => StoreError::NoSpace,
                _ => StoreError::Failed(format!("cannot sync the directory of {key}: {error}")),
            });
        }
        self.open.push(OpenFile { key, conn, in_transaction: false });
        Ok(self.open.len() - 1)
    }

    pub(crate) fn commit(&mut self, key: FileKey) -> Result<(), WriterError> {
        let Some(file) = self.open.iter_mut().find(|file| file.key == key) else {
            return Ok(());
        };
        file.in_transaction = false;
        let committed = file.conn.prepare_cached("COMMIT").and_then(|mut s| s.execute([]));
        if key == FileKey::Router {
            self.readers.records.forget(&self.changed);
        }
        match committed {
            Ok(_) => Ok(()),
            Err(error) => Err(WriterError::Refused(self.note_failure(key, &error))),
        }
    }

    /// Rolls the file back after an error whose transaction is over.
    fn note_failure(&mut self, key: FileKey, error: &rusqlite::Error) -> StoreError {
        let error = self.write_error(key, error);
        let is_full = error == StoreError::NoSpace;
        self.open.retain_mut(|file| file.key != key || (is_full && file.roll_back()));
        self.note(key, error)
    }

    fn note(&mut self, key: FileKey, error: StoreError) -> StoreError {
        self.failed.push((key, error.clone()));
        error
    }

    /// A statement that writes reads pages too.
    fn write_error(&self, key: FileKey, error: &rusqlite::Error) -> StoreError {
        let is_of_read = is_of_read(error);
        let error = write_error(key, error);
        if is_of_read {
            self.readers.failed.note(Instant::now(), error.to_string());
        }
        error
    }

    fn broken(&mut self, key: FileKey, error: &rusqlite::Error) -> WriterError {
        let error = self.write_error(key, error);
        self.is_disk_full |= error == StoreError::NoSpace;
        WriterError::Broken(error)
    }

    fn connection(&self, key: FileKey) -> &Connection {
        let file = self.open.iter().find(|file| file.key == key);
        &file.expect("its transaction was begun").conn
    }
}
