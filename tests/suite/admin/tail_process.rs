//! A `kalends feed tail` process, and its output line by line.

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};

use super::fixture::AdminFixture;
use crate::harness::{AT_ONCE, ExitOutput, signal, within};

/// A tail process, which is killed when this is dropped.
pub(super) struct TailProcess {
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl TailProcess {
    /// Starts a tail on the store of a fixture.
    pub(super) fn at(fixture: &AdminFixture, words: &str) -> Self {
        let words: Vec<_> = ["feed", "tail"].into_iter().chain(words.split(' ')).collect();
        Self::start(fixture.command(&words))
    }

    /// Starts a tail with this command.
    pub(super) fn start(mut command: Command) -> Self {
        let mut process = command.spawn().expect("kalends can be started");
        let lines = process.stdout.take().expect("standard output is a pipe");
        Self { process, lines: BufReader::new(lines) }
    }

    /// Waits for the next line of standard output.
    pub(super) async fn line(&mut self) -> String {
        let mut line = String::new();
        within(AT_ONCE, "an update is printed", self.lines.read_line(&mut line))
            .await
            .expect("kalends writes UTF-8");
        assert!(line.ends_with('\n'), "it ended after {line:?}");
        line.trim_end_matches('\n').to_owned()
    }

    /// Waits for the next `count` lines of standard output.
    pub(super) async fn take(&mut self, count: usize) -> Vec<String> {
        let mut lines = Vec::new();
        for _ in 0..count {
            lines.push(self.line().await);
        }
        lines
    }

    /// Waits for the next line of standard error.
    pub(super) async fn stderr_line(&mut self) -> String {
        let stderr = self.process.stderr.as_mut().expect("standard error is a pipe");
        let mut line = Vec::new();
        let read = async {
            while line.last() != Some(&b'\n') {
                line.push(stderr.read_u8().await.expect("a line has an end"));
            }
        };
        within(AT_ONCE, "a line is printed", read).await;
        String::from_utf8(line).expect("kalends writes UTF-8")
    }

    /// Kills the process with SIGKILL. Returns the complete lines that were printed and not read
    /// yet.
    pub(super) async fn kill(mut self) -> Vec<String> {
        self.process.kill().await.expect("kalends can be killed");
        let mut rest = String::new();
        while self.lines.read_line(&mut rest).await.expect("kalends writes UTF-8") > 0 {}
        // An incomplete last line does not count as printed.
        let whole = rest.rfind('\n').map_or("", |end| &rest[..end]);
        whole.lines().map(str::to_owned).collect()
    }

    /// Interrupts the tail like Ctrl-C and waits for its end. The returned output contains what was
    /// not read yet.
    pub(super) async fn interrupt(self) -> ExitOutput {
        signal(self.process.id().expect("the process was not waited for"), "INT");
        self.ended().await
    }

    /// Closes the reading side of standard output, and waits for the end of the tail.
    pub(super) async fn unread(self) -> ExitOutput {
        let Self { process, lines } = self;
        drop(lines);
        let output = within(AT_ONCE, "the tail ends", process.wait_with_output()).await;
        output.expect("a process can be waited for").into()
    }

    /// Waits for the end of the process, at most [`AT_ONCE`].
    pub(super) async fn ended(mut self) -> ExitOutput {
        let mut stdout = String::new();
        let rest = async {
            while self.lines.read_line(&mut stdout).await.expect("kalends writes UTF-8") > 0 {}
            self.process.wait_with_output().await
        };
        let output = within(AT_ONCE, "the tail ends", rest).await;
        ExitOutput { stdout, ..output.expect("a process can be waited for").into() }
    }
}
