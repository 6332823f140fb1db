//! The way back from a migration: a copy of each file that it changes, in `before-VERSION` of the data directory.
//!
//! All copies are on disk before the first file is changed. A file that was migrated before a crash keeps its copy, and one
//! that was not is copied anew: an older version may have written to it since.

use std::fs;
use std::path::{Path, PathBuf};

use storage::SyncSupport;
use storage::data_dir::{BESIDE, DirError, FileKey, free_bytes, sibling};
use storage::durable;

use crate::connection::{ConnectionRole, connect_in_any_mode};
use crate::error::OpenError;
use crate::page_copy::copy_pages;

/// Copies these files of `dir`, which have `bytes` together. Refuses if fewer than `free_bytes_min` would be left free.
pub(crate) fn copy(
    dir: &Path,
    files: &[(FileKey, PathBuf)],
    support: SyncSupport,
    (bytes, free_bytes_min): (u64, u64),
) -> Result<(), OpenError> {
    let failed = |error| DirError::io(dir, error);
    let Some((_, first)) = files.first() else { return Ok(()) };
    let (needed_bytes, free) =
        (bytes.saturating_add(free_bytes_min), free_bytes(dir).map_err(failed)?);
    if free < needed_bytes {
        return Err(OpenError::NoSpaceForCopy {
            file: first.clone(),
            needed_bytes,
            free_bytes: free,
        });
    }
    let copies = dir.join(concat!("before-", env!("CARGO_PKG_VERSION")));
    // Of a link, not what it leads to.
    if fs::symlink_metadata(&copies).is_ok_and(|found| !found.is_dir()) {
        return Err(OpenError::NoDirForCopy { path: copies });
    }
    durable::create_dir_all(&copies, 0o700).map_err(failed)?;
    for (key, from) in files {
        let to = copies.join(key.to_string());
        let unfinished = sibling(&to, ".new");
        durable::remove(&unfinished).map_err(failed)?;
        durable::remove_all(&BESIDE.map(|end| sibling(&unfinished, end))).map_err(failed)?;
        let conn = connect_in_any_mode(from, ConnectionRole::Reader, support)
            .map_err(|error| OpenError::unreadable(from, &error))?;
        copy_pages(*key, &conn, &unfinished, support, |_pages| Ok(()))
            .map_err(|error| OpenError::Copy { file: from.clone(), error })?;
        durable::sync_file(&unfinished).map_err(failed)?;
        durable::rename(&unfinished, &to).map_err(failed)?;
    }
    Ok(())
}
