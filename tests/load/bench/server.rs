//! The servers that are measured.

use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::sleep;

use super::shared::feed::Feed;
use super::shared::process::Process;
use super::shared::usage::{CpuTime, resident_kib};

/// The settings of Kalends beside the defaults: all agents connect from one address, as fast as they can.
const SETTINGS: [&str; 2] = ["--listen=127.0.0.1:0", "--connects-per-second-max=0"];

/// The feed that is measured.
const FEED: &str = "bench";

/// The file of its folder that has its log.
const LOG: &str = "log";

/// A server rests if it uses less than 1 % of a processor for this long.
const REST: Duration = Duration::from_millis(200);
const REST_US_MAX: f64 = 2000.0;

/// The number of looks at a server that does not rest. Then it counts as resting.
const RESTS_MAX: usize = 50;

/// What is measured. Each of them starts anew for each phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Program {
    /// This program, as the yardstick.
    Floor,
    Before(PathBuf),
    Now(PathBuf),
}

/// A running server with an empty data directory. It is killed when this is dropped.
pub(crate) struct Server {
    pub(crate) process: Process,
    program: Program,
    dir: TempDir,
}

impl Program {
    pub(crate) async fn start(&self) -> io::Result<Server> {
        let dir = TempDir::with_prefix("kalends-bench-")?;
        let command = match self {
            Self::Floor => {
                let mut command = Command::new(std::env::current_exe()?);
                command.arg("floor");
                command
            }
            Self::Before(path) | Self::Now(path) => {
                let mut command = Command::new(path);
                command.arg("serve").args(SETTINGS).arg("--data-dir").arg(dir.path().join("data"));
                command
            }
        };
        let process = Process::start(command, &dir.path().join(LOG)).await?;
        Ok(Server { process, program: self.clone(), dir })
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Floor => "floor",
            Self::Before(_) => "before",
            Self::Now(_) => "now",
        })
    }
}

impl Server {
    /// Returns the processor time of the server for the work, in µs, until it rests again.
    pub(crate) async fn cpu_us<T>(
        &self,
        work: impl Future<Output = io::Result<T>>,
    ) -> io::Result<(f64, T)> {
        self.rest().await?;
        let before = CpuTime::of(self.process.pid())?;
        let result = work.await?;
        self.rest().await?;
        Ok((CpuTime::of(self.process.pid())?.us_since(&before), result))
    }

    /// Returns the memory that the server holds in addition after the work, in KiB. Each measurement follows a wait.
    pub(crate) async fn memory_kib<T>(
        &self,
        wait: Duration,
        work: impl Future<Output = io::Result<T>>,
    ) -> io::Result<(f64, T)> {
        sleep(wait).await;
        self.rest().await?;
        let before = resident_kib(self.process.pid())?;
        let result = work.await?;
        sleep(wait).await;
        Ok((resident_kib(self.process.pid())? - before, result))
    }

    /// Waits for what the server does beside its answers.
    pub(crate) async fn rest(&self) -> io::Result<()> {
        for _ in 0..RESTS_MAX {
            let before = CpuTime::of(self.process.pid())?;
            sleep(REST).await;
            if CpuTime::of(self.process.pid())?.us_since(&before) < REST_US_MAX {
                break;
            }
        }
        Ok(())
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join(LOG)).unwrap_or_default()
    }

    /// A feed of this server of Kalends.
    pub(crate) async fn feed(&self) -> io::Result<Feed> {
        let (Program::Before(path) | Program::Now(path)) = &self.program else {
            return Err(io::Error::other("the floor has no feeds"));
        };
        let mut command = Command::new(path);
        command.args(["feed", "token", FEED, "--read", "--write", "--data-dir"]);
        let output = command.arg(self.dir.path().join("data")).kill_on_drop(true).output().await?;
        let token = String::from_utf8(output.stdout).map_err(io::Error::other)?;
        if !output.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        Ok(Feed::new(self.process.address.to_string(), token.trim().to_owned()))
    }

    /// Kills the server, so that its end costs the next one nothing.
    pub(crate) async fn end(mut self) -> io::Result<()> {
        self.process.child.kill().await
    }
}
