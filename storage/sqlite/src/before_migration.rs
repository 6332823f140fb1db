//! The way back from a migration: a copy of each file that it changes, in `before-VERSION` of the data directory.
//!
//! All copies are on disk before the first file is changed. A file that was migrated before a crash keeps its copy, and one
//! that was not is copied anew: an older version may have written to it since.

use std::fs;
use std::path::Path;

use storage::SyncSupport;
use storage::data_dir::{BESIDE, DirError, free_bytes, sibling};
use storage::durable;
use storage::upgrade::UpgradeStep;

use crate::connection::{ConnectionRole, connect_in_any_mode};
use crate::error::OpenError;
use crate::page_copy::{PAGE_BYTES, copy_pages};
use crate::upgrade::{OldFile, Upgrading};

/// Refuses if fewer than `free_bytes_min` would be left free beside the copies.
pub(crate) fn check_space(
    dir: &Path,
    upgrading: &Upgrading<'_>,
    free_bytes_min: u64,
) -> Result<(), OpenError> {
    let Some(OldFile { path: file, .. }) = upgrading.files.first() else { return Ok(()) };
    let needed_bytes = upgrading.bytes().saturating_add(free_bytes_min);
    let free_bytes = free_bytes(dir).map_err(|error| DirError::io(dir, error))?;
    match free_bytes < needed_bytes {
        true => Err(OpenError::NoSpaceForCopy { file: file.clone(), needed_bytes, free_bytes }),
        false => Ok(()),
    }
}

/// Copies the files of an older version in `dir`.
pub(crate) fn copy(
    dir: &Path,
    upgrading: &Upgrading<'_>,
    support: SyncSupport,
) -> Result<(), OpenError> {
    let failed = |error| DirError::io(dir, error);
    let copies = dir.join(concat!("before-", env!("CARGO_PKG_VERSION")));
    if upgrading.files.is_empty() {
        return Ok(());
    }
    // Of a link, not what it leads to.
    if fs::symlink_metadata(&copies).is_ok_and(|found| !found.is_dir()) {
        return Err(OpenError::NoDirForCopy { path: copies });
    }
    durable::create_dir_all(&copies, 0o700).map_err(failed)?;
    for file in &upgrading.files {
        let (OldFile { key, path: from, .. }, to) = (file, copies.join(file.key.to_string()));
        let unfinished = sibling(&to, ".new");
        durable::remove(&unfinished).map_err(failed)?;
        durable::remove_all(&BESIDE.map(|end| sibling(&unfinished, end))).map_err(failed)?;
        upgrading.step(UpgradeStep::Copy(*key), file, |done| {
            let conn = connect_in_any_mode(from, ConnectionRole::Reader, support)
                .map_err(|error| OpenError::unreadable(from, &error))?;
            let on_step = |pages| {
                done(pages * PAGE_BYTES);
                Ok(())
            };
            copy_pages(*key, &conn, &unfinished, support, on_step)
                .map_err(|error| OpenError::Copy { file: from.clone(), error })?;
            Ok(durable::sync_file(&unfinished).map_err(failed)?)
        })?;
        durable::rename(&unfinished, &to).map_err(failed)?;
    }
    Ok(())
}
