//! `kalends` as a command that a test waits for.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Output, Stdio};
use std::sync::Once;
use std::thread;
use std::time::Duration;

use tokio::process::{Child, Command};

use super::run::number_from_env;
use super::wait::{AT_ONCE, note, within};
use crate::shared::group::own_group;

/// A program that ends with this process, also if it is killed. All programs that tests start are made here.
pub(crate) fn child(program: impl AsRef<OsStr>) -> process::Command {
    static LIMIT: Once = Once::new();
    LIMIT.call_once(end_after_limit);
    let mut command = process::Command::new(program);
    command.process_group(own_group());
    // No file of this machine.
    command.env("KALENDS_CONFIG", "");
    command
}

/// Ends this process after an hour, so that no test loops for ever. A run with a duration of its own may last longer.
fn end_after_limit() {
    let longer = ["CHAOS_SECONDS", "POWER_SECONDS"].map(number_from_env);
    let limit = 3600 + longer.into_iter().flatten().sum::<u64>() * 2;
    thread::spawn(move || {
        thread::sleep(Duration::from_secs(limit));
        eprintln!("a test has not ended within {limit} s");
        process::exit(101);
    });
}

/// A running `kalends` process, which is killed when this is dropped.
pub(crate) struct Program(Child);

/// The program under test: that of this build, or `TESTED`, such as one for another processor (packaging/pi).
pub(crate) fn tested() -> PathBuf {
    std::env::var_os("TESTED").map_or(env!("CARGO_BIN_EXE_kalends").into(), PathBuf::from)
}

/// `kalends` with these arguments, not started yet.
pub(crate) fn kalends<S: AsRef<OsStr>>(arguments: &[S]) -> Command {
    let mut command = Command::from(child(tested()));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.kill_on_drop(true);
    command
}

/// Runs `kalends` with these arguments to its end, at most [`AT_ONCE`].
pub(crate) async fn run<S: AsRef<OsStr>>(arguments: &[S]) -> ExitOutput {
    Program::run(kalends(arguments)).await
}

/// Sends the signal with this name, such as `TERM`.
pub(crate) fn signal(pid: u32, name: &str) {
    let status = child("kill").args(["-s", name, &pid.to_string()]).status();
    assert!(status.expect("kill can be run").success());
}

/// The Python in which `make test` has installed what the tests need of Python.
pub(crate) fn python() -> PathBuf {
    installed("target/python/bin/python")
}

/// The packages of npm that `make test` has installed.
pub(crate) fn node_modules() -> PathBuf {
    installed("target/node/node_modules")
}

fn installed(path: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let remedy = "`make test` installs what the tests need";
    assert!(path.exists(), "{} is missing: {remedy}", path.display());
    path
}

/// Exit code and output of a finished process.
#[derive(Debug)]
pub(crate) struct ExitOutput {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Program {
    pub(crate) fn start(mut command: Command) -> Self {
        Self(command.spawn().expect("kalends can be started"))
    }

    /// Kills the process with SIGKILL.
    pub(crate) async fn kill(mut self) {
        self.0.kill().await.expect("kalends can be killed");
    }

    pub(crate) fn terminate(&self) {
        signal(self.0.id().expect("the process was not waited for"), "TERM");
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("a process can be waited for").is_some()
    }

    /// Runs the command to its end, at most [`AT_ONCE`].
    pub(crate) async fn run(command: Command) -> ExitOutput {
        Self::start(command).ended().await
    }

    /// Waits for the end of the process, at most [`AT_ONCE`].
    pub(crate) async fn ended(self) -> ExitOutput {
        let output = within(AT_ONCE, "kalends ends", self.0.wait_with_output()).await;
        let ended: ExitOutput = output.expect("a process can be waited for").into();
        note(format!("{ended:?}"));
        ended
    }
}

impl From<Output> for ExitOutput {
    fn from(Output { status, stdout, stderr }: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("kalends writes UTF-8");
        Self { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
    }
}

impl ExitOutput {
    /// Checks that the command succeeded. Returns its standard output.
    #[track_caller]
    pub(crate) fn succeeded(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// Checks that the command succeeded, and printed this on standard output.
    #[track_caller]
    pub(crate) fn printed(&self, stdout: &str) {
        assert_eq!((self.code, &*self.stdout), (Some(0), stdout), "{self:?}");
    }

    /// Checks that a start failed with this exit code and one clear line, which contains these texts.
    #[track_caller]
    pub(crate) fn refused_start(&self, code: i32, expected: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(self.stdout.is_empty() && !self.stderr.contains("panicked"), "{self:?}");
        let last = self.stderr.lines().last().expect("an error is printed");
        assert!(last.starts_with("kalends: "), "{self:?}");
        for text in expected {
            assert!(last.contains(text), "{text:?} is missing: {self:?}");
        }
    }

    /// Checks the exit code, and that standard error contains the reason.
    #[track_caller]
    pub(crate) fn failed(&self, code: i32, reason: &str) {
        assert_eq!(self.code, Some(code), "{reason:?}: {self:?}");
        assert!(self.stderr.contains(reason), "{reason:?} is missing: {self:?}");
    }
}
