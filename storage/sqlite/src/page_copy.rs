//! Copies the pages of a database as they are at one moment.

use std::io;
use std::path::Path;

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};
use storage::SyncSupport;
use storage::data_dir::FileKey;
use storage::durable;
use storage::store::StoreError;

use crate::connection::synchronous;
use crate::statements::run;

/// The size of a page in all files.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// Pages that one step copies.
const STEP_PAGES: i32 = 1024;

/// Copies a file of any journal mode to a new one, which the caller syncs. Returns the number of pages.
pub(crate) fn copy_pages(
    key: FileKey,
    from: &Connection,
    to: &Path,
    support: SyncSupport,
    mut on_step: impl FnMut(u64) -> Result<(), StoreError>,
) -> Result<u64, StoreError> {
    let name = key.to_string();
    durable::empty_file(to).map_err(|error| unwritable(to, &error))?;
    let mut copy = Connection::open(to).map_err(|error| failed(&name, &error))?;
    run(&copy, synchronous(support)).map_err(|error| failed(&name, &error))?;
    let backup = Backup::new(from, &mut copy).map_err(|error| failed(&name, &error))?;
    let copied = loop {
        let step = backup.step(STEP_PAGES).map_err(|error| failed(&name, &error))?;
        let progress = backup.progress();
        let copied = (progress.pagecount - progress.remaining).unsigned_abs().into();
        on_step(copied)?;
        if step == StepResult::Done {
            break copied;
        }
    };
    drop(backup);
    copy.close().map_err(|(_, error)| failed(&name, &error))?;
    Ok(copied)
}

pub(crate) fn failed(name: &str, error: &rusqlite::Error) -> StoreError {
    StoreError::Failed(format!("cannot copy {name}: {error}"))
}

pub(crate) fn unwritable(path: &Path, error: &io::Error) -> StoreError {
    StoreError::Failed(format!("cannot write {}: {error}", path.display()))
}
