//! Whether lines reach the log, and how many do not.

use std::cell::Cell;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use slog::{Drain, Level, Never, OwnedKVList, Record, b, o, record};

/// Time after which a line that is still being written counts as lost: its reader has stopped.
const WRITE_WAIT: Duration = Duration::from_secs(10);

/// How lines are lost.
pub const LOST: [&str; 2] = ["queue_full", "write_failed"];

/// What is known of the log, for the checks of health and for the metrics.
#[derive(Debug, Default)]
pub struct LogState {
    /// Whether the last line could not be written.
    fails: AtomicBool,
    /// When the write of a line began that has not ended.
    writing: Mutex<Option<Instant>>,
    dropped: AtomicU64,
    failed: AtomicU64,
}

impl LogState {
    /// Whether the last line was written, and none is stuck. The next line shows whether a log that failed works again.
    pub fn works(&self, now: Instant) -> bool {
        let is_stuck = |began: Instant| now.duration_since(began) > WRITE_WAIT;
        !self.fails.load(Ordering::Relaxed) && !self.writing().is_some_and(is_stuck)
    }

    /// The lines that were lost since the start, by how they were [`LOST`].
    pub fn lost(&self) -> [u64; LOST.len()] {
        [&self.dropped, &self.failed].map(|lines| lines.load(Ordering::Relaxed))
    }

    /// The queue was full.
    pub(super) fn count_dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    fn writing(&self) -> MutexGuard<'_, Option<Instant>> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write<E>(&self, line: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        *self.writing() = Some(Instant::now());
        let written = line();
        *self.writing() = None;
        self.fails.store(written.is_err(), Ordering::Relaxed);
        self.failed.fetch_add(u64::from(written.is_err()), Ordering::Relaxed);
        written
    }
}

/// Writes lines, and keeps the state. The first line that is written after a failure has the number of the lost ones.
pub(super) struct Watched<D> {
    drain: D,
    state: Arc<LogState>,
    /// Lines that could not be written since the last report.
    unreported: Cell<u64>,
}

impl<D: Drain<Ok = ()>> Watched<D> {
    pub(super) fn new(drain: D, state: Arc<LogState>) -> Self {
        Self { drain, state, unreported: Cell::new(0) }
    }

    fn report(&self) -> Result<(), D::Err> {
        let lines = self.unreported.get();
        if lines > 0 {
            log_lost(&self.drain, "the log could not be written, lines were lost", lines)?;
            self.unreported.set(0);
        }
        Ok(())
    }
}

impl<D: Drain<Ok = ()>> Drain for Watched<D> {
    type Ok = ();
    type Err = Never;

    fn log(&self, record: &Record<'_>, values: &OwnedKVList) -> Result<(), Never> {
        let line = || self.report().and_then(|()| self.drain.log(record, values));
        if self.state.write(line).is_err() {
            self.unreported.set(self.unreported.get() + 1);
        }
        Ok(())
    }
}

/// Logs how many lines were lost.
pub(super) fn log_lost<D: Drain>(drain: &D, text: &str, lines: u64) -> Result<D::Ok, D::Err> {
    let text = format_args!("{text}");
    drain.log(&record!(Level::Warning, "log", &text, b!("lines" => lines)), &o!().into())
}

/// Writes each line at once when it is flushed. After a failure, which may leave a part of a line, the next one begins
/// on a line of its own.
pub(super) struct WholeLines<W> {
    to: W,
    line: Vec<u8>,
}

impl<W> WholeLines<W> {
    pub(super) fn new(to: W) -> Self {
        Self { to, line: Vec::new() }
    }
}

impl<W: Write> Write for WholeLines<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        let written = self.to.write_all(&self.line).and_then(|()| self.to.flush());
        self.line.clear();
        written.inspect_err(|_| self.line.push(b'\n'))
    }
}
