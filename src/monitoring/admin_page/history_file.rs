//! `history.json` in the data directory: the history over a restart of the server.

use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use actors::SharedLogLimiter;
use parking_lot::Mutex;
use slog::{Logger, warn};
use state_machine::{Span, Time};
use storage::durable;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use super::history::{History, Written};
use crate::system::regular_file;

/// Time between two writes, beside the one at the end of the server.
pub(super) const WRITE_EVERY: Span = Span::from_secs(15 * 60);

/// Minimum time between two log lines of failed writes.
const LOG_EVERY: Span = Span::from_secs(24 * 60 * 60);

/// Maximum size of the file. A larger one is none of a server.
pub(super) const BYTES_MAX: usize = 100 * 1024;

/// Maximum time of the write at the end of the server, whose disk may hang.
const END_WAIT: Duration = Duration::from_secs(1);

const FILE: &str = "history.json";

/// What a damaged file is called, in place of an earlier one.
const DAMAGED: &str = "history.json.damaged";

/// The file, which one thread at a time writes.
pub(super) struct HistoryFile {
    path: PathBuf,
    due: Mutex<Time>,
    writes: Arc<Semaphore>,
    failures: Arc<Failures>,
}

/// The log of writes that fail.
struct Failures {
    limiter: SharedLogLimiter,
    log: Logger,
}

impl HistoryFile {
    /// Reads the history of the server before. Its data directory is this server's alone.
    pub(super) fn open(data_dir: &Path, now: Time, log: &Logger) -> (Self, History) {
        let path = data_dir.join(FILE);
        let mut history = History::new(now);
        // What a killed server left is removed when it can be.
        let _ = durable::remove_leftovers(&path);
        let read = read(&path).and_then(|text| {
            let before = text.map(|text| serde_json::from_slice::<Written>(&text)).transpose()?;
            let continued = before.map(|before| history.continues(&before, now)).transpose();
            continued.map_err(io::Error::other)
        });
        if let Err(error) = read {
            let set_aside = durable::rename(&path, &data_dir.join(DAMAGED));
            warn!(log, "the history of the figures cannot be read, it begins anew";
                "error" => %error, "set_aside_as" => set_aside.is_ok().then_some(DAMAGED));
        }
        let file = Self {
            path,
            due: Mutex::new(now + WRITE_EVERY),
            writes: Arc::new(Semaphore::new(1)),
            failures: Arc::new(Failures {
                limiter: SharedLogLimiter::new(LOG_EVERY),
                log: log.clone(),
            }),
        };
        (file, history)
    }

    /// Whether a write is due. If so, the next one is due after [`WRITE_EVERY`].
    pub(super) fn is_due(&self, now: Time) -> bool {
        let mut due = self.due.lock();
        let is_due = *due <= now || *due > now + WRITE_EVERY;
        if is_due {
            *due = now + WRITE_EVERY;
        }
        is_due
    }

    /// Begins to write on a thread of its own, which the end of the process does not wait for. Does nothing while the write
    /// before hangs.
    pub(super) fn write(&self, history: &Written, now: Time) -> Option<oneshot::Receiver<()>> {
        let permit = Arc::clone(&self.writes).try_acquire_owned().ok()?;
        let text = serde_json::to_vec(history).expect("numbers and texts are JSON");
        let (ended, end) = oneshot::channel();
        let (path, failures) = (self.path.clone(), Arc::clone(&self.failures));
        let write = move || {
            if let Err(error) = durable::replace(&path, text) {
                failures.count(&error, now);
            }
            drop(permit);
            // The server may not wait for it.
            let _ = ended.send(());
        };
        match thread::Builder::new().name("history".to_owned()).spawn(write) {
            Ok(_ends_by_itself) => Some(end),
            Err(error) => {
                self.failures.count(&error, now);
                None
            }
        }
    }

    /// Writes at the end of the server.
    pub(super) async fn end(&self, history: &Written, now: Time) {
        if let Some(end) = self.write(history, now) {
            // A write that hangs is left to the end of the process.
            let _ = timeout(END_WAIT, end).await;
        }
    }
}

impl Failures {
    fn count(&self, error: &io::Error, now: Time) {
        if let Some(failures) = self.limiter.count(now) {
            warn!(self.log, "cannot write the history of the figures";
                "error" => %error, "failures" => failures);
        }
    }
}

/// None if there is no file.
fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match regular_file::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut text = Vec::new();
    file.take(BYTES_MAX as u64 + 1).read_to_end(&mut text)?;
    match text.len() <= BYTES_MAX {
        true => Ok(Some(text)),
        false => Err(io::Error::new(ErrorKind::InvalidData, "it is larger than a history")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::history::tests::full;
    use super::*;
    use crate::system::telemetry::fixture::Log;

    const NOW: Time = Time(1_796_000_000_000);

    #[tokio::test]
    async fn a_history_is_written_seldom_and_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let (logger, mut log) = Log::new();
        let (file, history) = HistoryFile::open(dir.path(), NOW, &logger);
        assert_eq!(history.added(), [0; 4]);
        let times = [1, 899, 900, 901, 1799, 1800, 7200, 900];
        let due = times.map(|second| file.is_due(NOW + Span::from_secs(second)));
        assert_eq!(due, [false, false, true, false, false, true, true, true]);
        let end = NOW + Span::from_secs(3600);
        file.end(&full(NOW, end).whole(), end).await;
        let (_, history) = HistoryFile::open(dir.path(), end + Span(1), &logger);
        assert!(history.added()[0] > 200);
        assert_eq!(log.read().count(), 0);
    }

    #[tokio::test]
    async fn a_damaged_file_is_set_aside_with_a_line_of_the_log() {
        for damaged in [
            "",
            "{",
            "[]",
            "{\"starts\":[],\"names\":[],\"rings\":[7]}",
            &" ".repeat(BYTES_MAX + 1),
        ] {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join(FILE), damaged).unwrap();
            let (logger, mut log) = Log::new();
            let (file, history) = HistoryFile::open(dir.path(), NOW, &logger);
            assert_eq!(fs::read_to_string(dir.path().join(DAMAGED)).unwrap(), damaged);
            assert_eq!(log.read().count(), 1);
            file.end(&history.whole(), NOW).await;
            HistoryFile::open(dir.path(), NOW, &logger);
            assert_eq!(log.read().count(), 0);
        }
    }

    #[tokio::test]
    async fn a_directory_that_cannot_be_written_is_logged_once() {
        let dir = tempfile::tempdir().unwrap();
        let (logger, mut log) = Log::new();
        let (file, history) = HistoryFile::open(&dir.path().join("missing"), NOW, &logger);
        for seconds in [0, 900, 1800] {
            file.end(&history.whole(), NOW + Span::from_secs(seconds)).await;
        }
        assert_eq!(log.read().count(), 1);
    }
}
