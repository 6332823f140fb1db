//! The embedded engine in a directory of its own.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use storage::{Embedded, EmbeddedOptions, Store};
use tempfile::TempDir;

use super::world::Engine;

pub(crate) struct InDirectory(TempDir);

impl InDirectory {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
}

impl Engine for InDirectory {
    fn open(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        let opened = Embedded::open(self.0.path(), &EmbeddedOptions::new(4096));
        Box::pin(async { Arc::new(opened.unwrap()) as Arc<dyn Store> })
    }
}
