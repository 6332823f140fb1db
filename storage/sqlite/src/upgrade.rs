//! How far the upgrade of a directory's files is, and the thread that reports it.

use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use storage::data_dir::FileKey;
use storage::upgrade::{Upgrade, UpgradeStep, UpgradeWatch};

use crate::error::OpenError;

/// A file of an older version, and its size with its log.
pub(crate) struct OldFile {
    pub(crate) key: FileKey,
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
}

/// The files of an older version, and the state of their upgrade.
pub(crate) struct Upgrading<'a> {
    pub(crate) files: Vec<OldFile>,
    watch: UpgradeWatch<'a>,
    began: Instant,
    state: Mutex<Upgrade>,
}

impl<'a> Upgrading<'a> {
    pub(crate) fn new(files: Vec<OldFile>, has_copies: bool, watch: UpgradeWatch<'a>) -> Self {
        let bytes = files.iter().map(|file| file.bytes).sum();
        let state = Mutex::new(Upgrade {
            step: UpgradeStep::Begin,
            files: files.len(),
            bytes,
            done: 0,
            of: if has_copies { 2 * bytes } else { bytes },
            elapsed: Duration::ZERO,
        });
        Self { files, watch, began: Instant::now(), state }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.state().bytes
    }

    /// Runs the steps of the upgrade, which the watch follows. A thread reports: a step, such as the commit of a large
    /// change, may take minutes without a place to report from.
    pub(crate) fn watched(
        &self,
        steps: impl FnOnce() -> Result<(), OpenError>,
    ) -> Result<(), OpenError> {
        if self.files.is_empty() {
            return steps();
        }
        self.report();
        thread::scope(|scope| {
            let (working, waiting) = mpsc::channel::<()>();
            let reporter = thread::Builder::new().name("upgrade".to_owned());
            // Without the thread the upgrade is only silent.
            let _ = reporter.spawn_scoped(scope, move || {
                while waiting.recv_timeout(self.watch.every) == Err(RecvTimeoutError::Timeout) {
                    self.report();
                }
            });
            let result = steps();
            drop(working);
            result
        })?;
        self.state().step = UpgradeStep::Done;
        self.report();
        Ok(())
    }

    /// Runs a step with a file. The work may say how many of its bytes are done.
    pub(crate) fn step<T>(
        &self,
        step: UpgradeStep,
        file: &OldFile,
        work: impl FnOnce(&dyn Fn(u64)) -> Result<T, OpenError>,
    ) -> Result<T, OpenError> {
        let before = self.state().done;
        self.state().step = step;
        let result = work(&|bytes| self.state().done = before + bytes.min(file.bytes))?;
        self.state().done = before + file.bytes;
        Ok(result)
    }

    fn report(&self) {
        // The state is not locked while it is reported.
        let state = *self.state();
        (self.watch.see)(&Upgrade { elapsed: self.began.elapsed(), ..state });
    }

    fn state(&self) -> MutexGuard<'_, Upgrade> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
