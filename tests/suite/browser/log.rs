//! The output of a process, line by line, to wait for lines and to show when a test fails.

use std::io::{BufRead, BufReader, PipeReader};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// The lines so far, and whether the output has ended.
#[derive(Clone)]
pub(super) struct Log(Arc<(Mutex<Lines>, Condvar)>);

#[derive(Default)]
struct Lines {
    lines: Vec<String>,
    ended: bool,
}

impl Log {
    /// Reads the pipe in a thread until all its writers have closed it.
    pub(super) fn of(pipe: PipeReader) -> Self {
        let log = Self(Arc::default());
        let reader = log.clone();
        thread::spawn(move || reader.read(pipe));
        log
    }

    /// Waits for a line for which `find` returns a value.
    pub(super) fn wait_for<T>(
        &self,
        wait: Duration,
        find: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        self.wait_for_nth(wait, 0, find)
    }

    /// Like [`wait_for`](Self::wait_for), but skips the first `nth` matches.
    pub(super) fn wait_for_nth<T>(
        &self,
        wait: Duration,
        nth: usize,
        find: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let found = |lines: &Lines| lines.lines.iter().filter_map(|line| find(line)).nth(nth);
        let lines = self.wait(wait, |lines| lines.ended || found(lines).is_some());
        found(&lines)
    }

    /// Waits until all writers have closed the pipe, and returns whether they have.
    pub(super) fn wait_for_end(&self, wait: Duration) -> bool {
        self.wait(wait, |lines| lines.ended).ended
    }

    /// All values that `find` returns for the lines so far.
    pub(super) fn find_all<T>(&self, find: impl Fn(&str) -> Option<T>) -> Vec<T> {
        self.lock().lines.iter().filter_map(|line| find(line)).collect()
    }

    /// The last lines that contain the text, shortened.
    pub(super) fn tail(&self, text: &str) -> String {
        const LINES: usize = 80;
        const CHARS: usize = 300;
        let lines = self.lock();
        let lines: Vec<_> = lines.lines.iter().filter(|line| line.contains(text)).collect();
        let tail = lines.iter().skip(lines.len().saturating_sub(LINES));
        tail.map(|line| line.chars().take(CHARS).chain(['\n']).collect::<String>()).collect()
    }

    fn read(&self, pipe: PipeReader) {
        for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
            self.lock().lines.push(String::from_utf8_lossy(&line).into_owned());
            self.0.1.notify_all();
        }
        self.lock().ended = true;
        self.0.1.notify_all();
    }

    fn wait(&self, wait: Duration, until: impl Fn(&Lines) -> bool) -> MutexGuard<'_, Lines> {
        let going_on = |lines: &mut Lines| !until(lines);
        let waited = self.0.1.wait_timeout_while(self.lock(), wait, going_on);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
