//! Prints the output of a command on standard output: as text, or one JSON object a line.

use std::io::{self, IsTerminal, Write, stderr};

use super::bar::Bar;
use super::error::CommandError;
use super::output::{Completion, Output, Report};

pub struct Printer<W> {
    to: W,
    is_json: bool,
    pub bar: Bar,
    has_reported: bool,
}

impl<W: Write> Printer<W> {
    /// Prints to `to`, and progress on standard error.
    pub fn new(to: W, is_json: bool) -> Self {
        Self { to, is_json, bar: Bar::new(stderr().is_terminal()), has_reported: false }
    }

    /// Prints an output. The last one is returned instead.
    pub fn print<R: Report>(
        &mut self,
        output: Output<R>,
    ) -> Result<Option<Completion>, CommandError> {
        match output {
            Output::Progress(progress) => self.bar.show(&progress),
            Output::End(end) => {
                self.bar.end();
                return Ok(Some(end));
            }
            Output::Problem(text) => self.eprint(&text),
            Output::Note(text) => self.write(&(text + "\n"))?,
            Output::Report(report) => {
                let text = self.text_of(&report);
                self.write(&text)?;
            }
        }
        Ok(None)
    }

    /// What is printed for a report.
    pub fn text_of(&mut self, report: &impl Report) -> String {
        let is_first = !std::mem::replace(&mut self.has_reported, true);
        if self.is_json { report.json() } else { report.text(is_first) }
    }

    pub fn write(&mut self, text: &str) -> io::Result<()> {
        let to = &mut self.to;
        self.bar.aside(|| to.write_all(text.as_bytes()).and_then(|()| to.flush()))
    }

    /// Prints a line on standard error.
    pub fn eprint(&self, text: &str) {
        // It may be closed.
        let _ = self.bar.aside(|| writeln!(stderr(), "kalends: {text}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::output::{NoReport, Progress};

    #[test]
    fn progress_is_not_printed_on_standard_output() {
        let mut printer = Printer::new(Vec::new(), false);
        let progress = Progress { what: "x".into(), done: 1, of: None };
        let printed = printer.print(Output::<NoReport>::Progress(progress)).unwrap();
        assert_eq!((printed, &printer.to[..]), (None, &[][..]));
    }
}
