//! The embedded engine in a directory of its own.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use storage::{Embedded, EmbeddedOptions, StoreAdmin, WaitingLimits};
use tempfile::TempDir;

use crate::conformance::world::Engine;

pub(crate) struct InDirectory(TempDir, WaitingLimits);

impl InDirectory {
    pub(crate) fn new() -> Self {
        Self::bounded(WaitingLimits::NONE)
    }

    pub(crate) fn bounded(limits: WaitingLimits) -> Self {
        Self(tempfile::tempdir().unwrap(), limits)
    }
}

impl Engine for InDirectory {
    fn open(&self) -> BoxFuture<'_, Arc<dyn StoreAdmin>> {
        let options = EmbeddedOptions { waiting: self.1, ..EmbeddedOptions::new(4096) };
        let opened = Embedded::open(self.0.path(), &options);
        Box::pin(async { Arc::new(opened.unwrap()) as Arc<dyn StoreAdmin> })
    }
}
