//! The mark of a store that `kalends store copy` has begun to fill. It names the source, and is removed once the copy is
//! complete.
//!
//! In shared tables it is an entry beside the fingerprints of keys, whose code keeps entries of other kinds. With SQLite it is
//! a file in the data directory.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use storage::{StoreAdmin, durable};

use super::items_version;
use super::key_fingerprints::{KeyFingerprintsError, update};
use crate::settings::table::Settings;
use crate::settings::value::{StoreKind, Value};

/// The file in the data directory.
const FILE: &str = "copying";

/// The start of the entry.
const PREFIX: &str = "copying:";

#[derive(Debug, thiserror::Error)]
pub enum CopyMarkerError {
    #[error(
        "the store is an unfinished copy of {source_name}: finish it with `kalends store copy --to {to}`, or delete \
         what it has copied (the tables, or router.db*, messages_*.db* and `copying`)"
    )]
    Unfinished { source_name: String, to: String },
    #[error("cannot mark the copy in {}: {error}", dir.display())]
    File { dir: PathBuf, error: io::Error },
    #[error(transparent)]
    Entry(#[from] KeyFingerprintsError),
}

/// Refuses a store that is an unfinished copy.
pub(crate) async fn check(
    settings: &Settings,
    store: &dyn StoreAdmin,
) -> Result<(), CopyMarkerError> {
    match read(settings.store, &settings.data_dir, store).await? {
        None => Ok(()),
        Some(source_name) => {
            Err(CopyMarkerError::Unfinished { source_name, to: settings.store.show() })
        }
    }
}

/// The source of an unfinished copy. Refuses tables of a newer version.
pub(crate) async fn read(
    kind: StoreKind,
    dir: &Path,
    store: &dyn StoreAdmin,
) -> Result<Option<String>, CopyMarkerError> {
    if kind.is_shared() {
        let entries = store.key_fingerprints().await.map_err(KeyFingerprintsError::from)?;
        items_version::check(&entries).map_err(KeyFingerprintsError::from)?;
        let source = entries.iter().find_map(|entry| entry.strip_prefix(PREFIX));
        return Ok(source.map(str::to_owned));
    }
    match fs::read_to_string(dir.join(FILE)) {
        Ok(source) => Ok(Some(source.trim_end().to_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(CopyMarkerError::File { dir: dir.to_owned(), error }),
    }
}

/// Marks a data directory before its store exists, so that a copy that fails early leaves none that a server starts on.
pub(crate) fn mark_new(dir: &Path, source: &str) -> Result<(), CopyMarkerError> {
    set_file(dir, Some(source))
}

/// Marks the store as a copy of this source, or as complete.
pub(crate) async fn set(
    kind: StoreKind,
    dir: &Path,
    store: &dyn StoreAdmin,
    source: Option<&str>,
) -> Result<(), CopyMarkerError> {
    if kind == StoreKind::Embedded {
        return set_file(dir, source);
    }
    let mark = source.map(|source| format!("{PREFIX}{source}"));
    let changed = update(store, async |before: &BTreeSet<String>| {
        let others = before.iter().filter(|entry| !entry.starts_with(PREFIX));
        Ok((others.chain(&mark).cloned().collect(), ()))
    });
    Ok(changed.await?)
}

fn set_file(dir: &Path, source: Option<&str>) -> Result<(), CopyMarkerError> {
    let set = match source {
        Some(source) => durable::replace(&dir.join(FILE), format!("{source}\n")),
        None => durable::remove(&dir.join(FILE)),
    };
    set.map_err(|error| CopyMarkerError::File { dir: dir.to_owned(), error })
}
