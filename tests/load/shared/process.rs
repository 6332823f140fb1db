//! A server as a process.

use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

/// What precedes the address in the first line of a server.
const GREETING: &str = " is listening on http";

/// Maximum time of a start.
const START_WAIT: Duration = Duration::from_secs(60);

/// A process that has printed its address. It is killed when this is dropped.
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) address: SocketAddr,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts the command, whose standard error becomes the file `log`. An error has the log.
    pub(crate) async fn start(mut command: Command, log: &Path) -> io::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(log)?);
        command.process_group(super::group::own_group());
        let spawned = command.kill_on_drop(true).spawn();
        let mut child = spawned.map_err(|error| {
            let program = command.as_std().get_program().display();
            io::Error::new(error.kind(), format!("{program} cannot be started: {error}"))
        })?;
        let mut lines = BufReader::new(child.stdout.take().expect("it was piped")).lines();
        let line = next_line(&mut lines).await;
        let url = line.split_once(GREETING).and_then(|(_, url)| url.split_once("://"));
        let address = url.map(|(_, address)| address.trim_end_matches('/'));
        match address.and_then(|address| address.parse().ok()) {
            Some(address) => Ok(Self { child, address, lines }),
            None => {
                let program = command.as_std().get_program().display();
                let log = fs::read_to_string(log).unwrap_or_default();
                let error = format!(
                    "{program} printed {line:?} in place of its address, and logged:\n{log}"
                );
                Err(io::Error::other(error))
            }
        }
    }

    /// The next line that it prints; empty if there is none.
    pub(crate) async fn line(&mut self) -> String {
        next_line(&mut self.lines).await
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid() as i32).expect("a process has an id");
        kill_process(pid, signal).expect("the process runs");
    }

    /// Waits for the end of the process; its exit code if it ended in time and by itself.
    pub(crate) async fn ended_within(&mut self, bound: Duration) -> Option<i32> {
        let ended = timeout(bound, self.child.wait()).await.ok()?;
        ended.expect("a process can be waited for").code()
    }

    /// The id of the process, which was not waited for.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("it was not waited for")
    }
}

async fn next_line(lines: &mut Lines<BufReader<ChildStdout>>) -> String {
    let line = timeout(START_WAIT, lines.next_line()).await;
    line.ok().and_then(Result::ok).flatten().unwrap_or_default()
}
