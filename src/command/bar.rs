//! Progress on standard error: a bar on a terminal, a line every few seconds elsewhere.

use std::io::{Write, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::output::Progress;

/// The interval of lines without a terminal. A command that ends sooner writes none.
const LINE_EVERY: Duration = Duration::from_secs(5);

const KNOWN: &str = "{msg} [{bar:30}] {human_pos} of {human_len}, {eta} left";
const UNKNOWN: &str = "{spinner} {msg}: {human_pos}";

/// Shows the progress of a job.
pub enum Bar {
    /// A bar on a terminal.
    Drawn(ProgressBar),
    /// Lines in a file or a pipe.
    Lines { due: Instant },
}

impl Bar {
    pub fn new(is_terminal: bool) -> Self {
        match is_terminal {
            true => Self::Drawn(ProgressBar::no_length()),
            false => Self::Lines { due: Instant::now() + LINE_EVERY },
        }
    }

    pub fn show(&mut self, progress: &Progress) {
        match self {
            Self::Drawn(bar) => draw(bar, progress),
            Self::Lines { due } => {
                if let Some(line) = line_if_due(due, Instant::now(), progress) {
                    // Standard error may be closed.
                    let _ = writeln!(stderr(), "{line}");
                }
            }
        }
    }

    /// Shows the progress of a job without an end: without a terminal, only while it is behind.
    pub fn follow(&mut self, progress: &Progress) {
        let is_behind = progress.of.is_some_and(|of| progress.done < of);
        if is_behind || matches!(self, Self::Drawn(_)) {
            self.show(progress);
        }
    }

    /// Hides the bar while `print` runs.
    pub fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        match self {
            // Suspending a bar that was not drawn yet would draw it empty.
            Self::Drawn(bar) if !bar.message().is_empty() && !bar.is_finished() => {
                bar.suspend(print)
            }
            Self::Drawn(_) | Self::Lines { .. } => print(),
        }
    }

    pub fn end(&self) {
        if let Self::Drawn(bar) = self {
            bar.finish_and_clear();
        }
    }
}

fn draw(bar: &ProgressBar, progress: &Progress) {
    let Progress { what, done, of } = progress;
    // Another step of the same command has an estimate of its own.
    if bar.message() != *what {
        let style = ProgressStyle::with_template(if of.is_some() { KNOWN } else { UNKNOWN });
        bar.reset();
        bar.set_style(style.expect("the templates are sound"));
        bar.set_message(what.clone());
    }
    // DynamoDB's number of rows is hours old.
    bar.set_length(of.map_or(*done, |of| of.max(*done)));
    bar.set_position(*done);
}

fn line_if_due(due: &mut Instant, now: Instant, progress: &Progress) -> Option<String> {
    let Progress { what, done, of } = progress;
    (now >= *due).then(|| {
        *due = now + LINE_EVERY;
        match of {
            Some(of) => format!("{what}: {done} of {}", of.max(done)),
            None => format!("{what}: {done}"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(done: u64, of: Option<u64>) -> Progress {
        Progress { what: "dropping users".into(), done, of }
    }

    #[test]
    fn a_line_is_written_every_five_seconds() {
        let start = Instant::now();
        let mut due = start + LINE_EVERY;
        let mut line =
            |ms, progress| line_if_due(&mut due, start + Duration::from_millis(ms), &progress);
        assert_eq!(line(4999, progress(1, None)), None);
        assert_eq!(line(5000, progress(2, None)).unwrap(), "dropping users: 2");
        assert_eq!(line(9999, progress(3, Some(9))), None);
        assert_eq!(line(12_000, progress(3, Some(9))).unwrap(), "dropping users: 3 of 9");
        assert_eq!(line(16_000, progress(9, Some(9))), None);
        assert_eq!(line(17_000, progress(10, Some(9))).unwrap(), "dropping users: 10 of 10");
    }

    #[test]
    fn a_bar_shows_position_and_length() {
        let bar = ProgressBar::hidden();
        draw(&bar, &progress(3, None));
        assert_eq!((bar.position(), bar.length()), (3, Some(3)));
        draw(&bar, &Progress { what: "copying rows".into(), done: 4, of: Some(9) });
        assert_eq!((bar.position(), bar.length()), (4, Some(9)));
        assert_eq!(bar.message(), "copying rows");
    }
}
