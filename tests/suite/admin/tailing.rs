//! A `kalends feed tail` that runs.

use std::process::Output;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};

use super::place::Place;
use crate::harness::{AT_ONCE, Ended, within};

/// How long a tail may take to find a server that is there again: its longest pause is four seconds.
const BACK: Duration = Duration::from_secs(20);

/// A tail. Killed when dropped.
pub(super) struct Tailing {
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl Tailing {
    /// Starts one at a place.
    pub(super) fn at(place: &Place, words: &str) -> Self {
        let words: Vec<_> = ["feed", "tail"].into_iter().chain(words.split(' ')).collect();
        Self::start(place.command(&words))
    }

    /// Starts a command that is one.
    pub(super) fn start(mut command: Command) -> Self {
        let mut process = command.spawn().expect("kalends can be started");
        let lines = process.stdout.take().expect("standard output is a pipe");
        Self { process, lines: BufReader::new(lines) }
    }

    /// The next line that it prints.
    pub(super) async fn line(&mut self) -> String {
        let mut line = String::new();
        within(BACK, "an update is printed", self.lines.read_line(&mut line))
            .await
            .expect("kalends writes UTF-8");
        assert!(line.ends_with('\n'), "it ended after {line:?}");
        line.trim_end_matches('\n').to_owned()
    }

    /// The next lines that it prints.
    pub(super) async fn take(&mut self, count: usize) -> Vec<String> {
        let mut lines = Vec::new();
        for _ in 0..count {
            lines.push(self.line().await);
        }
        lines
    }

    /// The next line that it has on standard error.
    pub(super) async fn complaint(&mut self) -> String {
        let stderr = self.process.stderr.as_mut().expect("standard error is a pipe");
        let mut line = Vec::new();
        let read = async {
            while line.last() != Some(&b'\n') {
                line.push(stderr.read_u8().await.expect("a line has an end"));
            }
        };
        within(AT_ONCE, "something is said", read).await;
        String::from_utf8(line).expect("kalends writes UTF-8")
    }

    /// Kills it, as kill -9 does. The lines that it had printed by then and that were not taken yet.
    pub(super) async fn kill(mut self) -> Vec<String> {
        self.process.kill().await.expect("kalends can be killed");
        let mut rest = String::new();
        while self.lines.read_line(&mut rest).await.expect("kalends writes UTF-8") > 0 {}
        // What is behind the last line's end is not printed.
        let whole = rest.rfind('\n').map_or("", |end| &rest[..end]);
        whole.lines().map(str::to_owned).collect()
    }

    /// Interrupts it, as Ctrl-C does, and waits for its end. What it had not printed yet is in what is returned.
    pub(super) async fn interrupt(self) -> Ended {
        let pid = self.process.id().expect("nobody waited for it").to_string();
        let status = std::process::Command::new("kill").args(["-s", "INT", &pid]).status();
        assert!(status.expect("kill can be run").success());
        self.ended().await
    }

    /// Reads no more of it, and waits for its end.
    pub(super) async fn unread(self) -> Ended {
        let Self { process, lines } = self;
        drop(lines);
        let output = within(AT_ONCE, "the tail ends", process.wait_with_output()).await;
        let Output { status, stderr, .. } = output.expect("a process can be waited for");
        let stderr = String::from_utf8(stderr).expect("kalends writes UTF-8");
        Ended { code: status.code(), stdout: String::new(), stderr }
    }

    /// Waits for its end, which must come soon.
    pub(super) async fn ended(mut self) -> Ended {
        let mut stdout = String::new();
        let rest = async {
            while self.lines.read_line(&mut stdout).await.expect("kalends writes UTF-8") > 0 {}
            self.process.wait_with_output().await
        };
        let output = within(AT_ONCE, "the tail ends", rest).await;
        let Output { status, stderr, .. } = output.expect("a process can be waited for");
        let stderr = String::from_utf8(stderr).expect("kalends writes UTF-8");
        Ended { code: status.code(), stdout, stderr }
    }
}
