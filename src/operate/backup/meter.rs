//! Progress while the files are read and while the archive is written.

use std::io::{self, IsTerminal, Write, stderr};

use crate::command::bar::Bar;
use crate::command::output::Progress;

/// Counts the bytes of one step, and shows them.
pub(super) struct Meter {
    /// None while another program asks on the terminal.
    bar: Option<Bar>,
    progress: Progress,
}

/// Counts what is written.
pub(super) struct Metered<'a, W>(&'a mut Meter, W);

impl Meter {
    pub(super) fn new(is_shown: bool) -> Self {
        let bar = is_shown.then(|| Bar::new(stderr().is_terminal()));
        Self { bar, progress: Progress { what: String::new(), done: 0, of: None } }
    }

    /// Begins a step of so many bytes.
    pub(super) fn begin(&mut self, what: &str, bytes: u64) {
        self.progress = Progress { what: what.to_owned(), done: 0, of: Some(bytes) };
    }

    pub(super) fn over<W: Write>(&mut self, to: W) -> Metered<'_, W> {
        Metered(self, to)
    }
}

impl<W: Write> Write for Metered<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Self(Meter { bar, progress }, to) = self;
        let written = to.write(bytes)?;
        progress.done += written as u64;
        if let Some(bar) = bar {
            bar.show(progress);
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.1.flush()
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.end();
        }
    }
}
