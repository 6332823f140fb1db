//! What a process writes, line by line: to wait for, and to show when a test fails.

use std::io::{BufRead, BufReader, PipeReader};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// The lines written so far, and whether there will be more.
#[derive(Clone)]
pub(super) struct Log(Arc<(Mutex<Lines>, Condvar)>);

#[derive(Default)]
struct Lines {
    lines: Vec<String>,
    ended: bool,
}

impl Log {
    /// Reads the pipe, on a thread of its own, until all who could write to it have gone.
    pub(super) fn of(pipe: PipeReader) -> Self {
        let log = Self(Arc::default());
        let reader = log.clone();
        thread::spawn(move || reader.read(pipe));
        log
    }

    /// Waits for a line that `find` finds something in.
    pub(super) fn wait_for<T>(
        &self,
        wait: Duration,
        find: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        self.wait_for_nth(wait, 0, find)
    }

    /// The same, passing over the first `nth` of them.
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

    /// Waits until all who could write have gone. Answers whether they have.
    pub(super) fn wait_for_end(&self, wait: Duration) -> bool {
        self.wait(wait, |lines| lines.ended).ended
    }

    /// What `find` finds in the lines so far.
    pub(super) fn find_all<T>(&self, find: impl Fn(&str) -> Option<T>) -> Vec<T> {
        self.lock().lines.iter().filter_map(|line| find(line)).collect()
    }

    /// The last lines that hold the text, each cut to a readable length.
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
