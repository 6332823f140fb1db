//! The server under attack.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::Plan;

/// The start of the first line of a server.
const GREETING: &str = "Kalends is listening on http://";

/// Maximum time of a start, and of an end.
const WAIT: Duration = Duration::from_secs(60);

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    own: Option<Own>,
}

/// A process of ours, which is killed when this is dropped, and its data.
struct Own {
    process: Child,
    dir: TempDir,
}

impl Server {
    /// The one that runs already, or one with an empty data directory and at most this many open files.
    pub(crate) async fn start(plan: &Plan, arguments: &[String], open_files: Option<u32>) -> Self {
        match plan.running {
            Some(address) => Self { address, own: None },
            None => {
                Self::spawn(
                    plan,
                    TempDir::new().expect("a folder can be made"),
                    arguments,
                    open_files,
                )
                .await
            }
        }
    }

    async fn spawn(
        plan: &Plan,
        dir: TempDir,
        arguments: &[String],
        open_files: Option<u32>,
    ) -> Self {
        let mut command = Command::new("sh");
        let limit = open_files.map_or(String::new(), |files| format!("ulimit -n {files} && "));
        command.arg("-c").arg(format!("{limit}exec \"$0\" \"$@\"")).arg(&plan.kalends);
        command
            .args(["serve", "--listen=127.0.0.1:0"])
            .arg("--data-dir")
            .arg(dir.path().join("data"));
        command.args(arguments).args(&plan.arguments).stdin(Stdio::null()).stdout(Stdio::piped());
        command
            .stderr(File::create(dir.path().join("log")).expect("a log can be made"))
            .kill_on_drop(true);
        let mut process = command.spawn().expect("--kalends can be started");
        let output = process.stdout.take().expect("it was piped");
        let line = timeout(WAIT, BufReader::new(output).lines().next_line()).await;
        let line = line.ok().and_then(Result::ok).flatten().unwrap_or_default();
        let address = line
            .strip_prefix(GREETING)
            .and_then(|address| address.trim_end_matches('/').parse().ok());
        let address = address.unwrap_or_else(|| {
            panic!("{line:?}: {}", fs::read_to_string(dir.path().join("log")).unwrap_or_default())
        });
        Self { address, own: Some(Own { process, dir }) }
    }

    /// Stops a server of ours, and starts it again on its data with other arguments.
    pub(crate) async fn restart(self, plan: &Plan, arguments: &[String]) -> Self {
        let Own { mut process, dir } = self.own.expect("the server is ours");
        let pid = process.id().and_then(|pid| Pid::from_raw(pid as i32));
        kill_process(pid.expect("it runs"), Signal::TERM).expect("it runs");
        timeout(WAIT, process.wait()).await.expect("it ends soon").expect("it can be waited for");
        Self::spawn(plan, dir, arguments, None).await
    }

    /// The size of all data, unless the server is another's.
    pub(crate) fn disk_bytes(&self) -> Option<u64> {
        let bytes = |dir: &Path| -> u64 {
            let files = fs::read_dir(dir).expect("the server has made it");
            files.filter_map(|file| Some(file.ok()?.metadata().ok()?.len())).sum()
        };
        self.own.as_ref().map(|own| bytes(&own.dir.path().join("data")))
    }
}
