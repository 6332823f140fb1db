//! `kalends` as a command that ends, or is waited for.

use std::ffi::OsStr;
use std::process::{Output, Stdio};

use tokio::process::{Child, Command};

use super::wait::{AT_ONCE, within};

/// A run of `kalends`. Killed when dropped.
pub(crate) struct Program(Child);

/// `kalends` with these arguments, not started yet.
pub(crate) fn kalends<S: AsRef<OsStr>>(arguments: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kalends"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.kill_on_drop(true);
    command
}

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Program {
    /// Starts it.
    pub(crate) fn start(mut command: Command) -> Self {
        Self(command.spawn().expect("kalends can be started"))
    }

    /// Kills it, as kill -9 does.
    pub(crate) async fn kill(mut self) {
        self.0.kill().await.expect("kalends can be killed");
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        let pid = self.0.id().expect("nobody waited for it").to_string();
        let status = std::process::Command::new("kill").args(["-s", "TERM", &pid]).status();
        assert!(status.expect("kill can be run").success());
    }

    /// Runs it to its end, which must come soon.
    pub(crate) async fn run(command: Command) -> Ended {
        Self::start(command).ended().await
    }

    /// Waits for its end, which must come soon.
    pub(crate) async fn ended(self) -> Ended {
        let output = within(AT_ONCE, "kalends ends", self.0.wait_with_output()).await;
        let Output { status, stdout, stderr } = output.expect("a process can be waited for");
        let text = |bytes| String::from_utf8(bytes).expect("kalends writes UTF-8");
        Ended { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
    }
}
