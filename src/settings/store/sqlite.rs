//! Opens SQLite with the settings.

use std::path::Path;
use std::sync::Arc;

use storage::StoreAdmin;
use storage::upgrade::UpgradeWatch;
use storage_sqlite::{Embedded, EmbeddedOptions, OpenError};

use super::open_error::OpenStoreError;
use crate::settings::Settings;

impl From<OpenError> for OpenStoreError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Dir(error) => Self::Dir(error),
            error => Self::Sqlite(error),
        }
    }
}

pub(super) fn open(
    settings: &Settings,
    watch: UpgradeWatch<'_>,
) -> Result<Arc<dyn StoreAdmin>, OpenStoreError> {
    let options = EmbeddedOptions {
        waiting: settings.waiting_limits(),
        free_bytes_min: settings.disk_free_min,
        migration_copy: settings.migration_copy,
        ..EmbeddedOptions::new(settings.write_queue_max)
    };
    Ok(Arc::new(Embedded::open_watched(&settings.data_dir, &options, watch)?))
}

/// Checks every database of a restored data directory, and migrates those of an older version.
pub fn check_restored(dir: &Path, watch: UpgradeWatch<'_>) -> Result<(), OpenStoreError> {
    Ok(storage_sqlite::check_restored(dir, watch)?)
}
