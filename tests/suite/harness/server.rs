//! `kalends serve` as a process, in a data directory of its own.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use super::sender::Sender;
use super::wait::until;

/// A running server. Killed when dropped; its data directory lives until then.
///
/// A server that panicked anywhere, in whatever thread, fails the test it served.
pub(crate) struct Server {
    process: Child,
    address: SocketAddr,
    launch: Launch,
    data: TempDir,
}

/// How a server is started, beside where its data is and where it listens.
#[derive(Debug, Clone, Default)]
pub(crate) struct Launch {
    /// More arguments for `kalends serve`.
    pub(crate) arguments: Vec<String>,
    /// Environment variables of that process only.
    pub(crate) variables: Vec<(&'static str, String)>,
}

/// The line that says where the server is.
const GREETING: &str = "Kalends is listening on http://";

impl Server {
    /// A server on a free port with an empty data directory.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with more arguments for `kalends serve`.
    pub(crate) fn start_with(arguments: &[&str]) -> Self {
        Self::launch(Launch::default().with(arguments))
    }

    /// The same with an environment.
    pub(crate) fn launch(launch: Launch) -> Self {
        let data = TempDir::new().expect("a temporary directory can be made");
        let (process, address) = spawn(data.path(), "127.0.0.1:0", &launch);
        Self { process, address, launch, data }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What endpoints begin with and VAPID tokens must name.
    pub(crate) fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What user agents connect to.
    pub(crate) fn socket_url(&self) -> String {
        format!("ws://{}/", self.address)
    }

    /// Its data directory.
    pub(crate) fn data_dir(&self) -> PathBuf {
        data_dir(self.data.path())
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// How many agents are connected, by what it says of its health.
    pub(crate) async fn connections(&self) -> u64 {
        let health = Sender::new().get(&format!("{}/health", self.origin())).await;
        assert_eq!(health.status, 200, "{health}");
        let health: Value = serde_json::from_slice(&health.body).expect("health is JSON");
        health["connections"].as_u64().expect("connections are counted")
    }

    /// The memory that is resident, in KiB.
    pub(crate) fn memory_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.expect("the server runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        kib.and_then(|kib| kib.parse().ok()).expect("Linux says how much memory it has")
    }

    /// What it logged, in all its lives.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(log_file(self.data.path())).expect("the server has a log")
    }

    /// Kills it, as kill -9 does.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("the server runs");
        self.process.wait().expect("a killed process ends");
    }

    /// Sends SIGTERM and waits for the end.
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        self.signal("TERM");
        self.process.wait().expect("a process can be waited for")
    }

    /// Waits for the end, of which it was told.
    pub(crate) async fn ended_within(&mut self, bound: Duration) -> ExitStatus {
        let mut ended = None;
        until(bound, "the server ends", async || {
            ended = self.process.try_wait().expect("a process can be waited for");
            ended.is_some()
        })
        .await;
        ended.expect("waited for")
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.pid().to_string()]).status();
        assert!(status.expect("kill can be run").success());
    }

    /// Starts it again, after it was killed or terminated: same data, same port.
    pub(crate) fn restart(&mut self) {
        let listen = self.address.to_string();
        (self.process, self.address) = spawn(self.data.path(), &listen, &self.launch);
    }

    /// The same, started otherwise than before.
    pub(crate) fn restart_as(&mut self, launch: Launch) {
        self.launch = launch;
        self.restart();
    }
}

impl Launch {
    /// The same with more arguments.
    pub(crate) fn with<S: AsRef<str>>(mut self, arguments: &[S]) -> Self {
        self.arguments.extend(arguments.iter().map(|argument| argument.as_ref().to_owned()));
        self
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to do.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let log = self.log();
        if std::thread::panicking() {
            eprintln!("the server logged:\n{log}");
        } else {
            assert!(!log.contains("panicked at"), "the server panicked:\n{log}");
        }
    }
}

/// A directory that the server makes itself.
fn data_dir(dir: &Path) -> PathBuf {
    dir.join("data")
}

fn log_file(dir: &Path) -> PathBuf {
    dir.join("log")
}

fn spawn(dir: &Path, listen: &str, launch: &Launch) -> (Child, SocketAddr) {
    let mut process = Command::new(env!("CARGO_BIN_EXE_kalends"))
        .arg("serve")
        .arg("--data-dir")
        .arg(data_dir(dir))
        .args(["--listen", listen])
        .args(&launch.arguments)
        .envs(launch.variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(open_log(dir))
        .spawn()
        .expect("the server can be started");
    let mut line = String::new();
    let mut output = BufReader::new(process.stdout.take().expect("standard output is a pipe"));
    output.read_line(&mut line).expect("the server says where it is");
    let address = line.strip_prefix(GREETING).and_then(|rest| rest.trim().parse().ok());
    match address {
        Some(address) => (process, address),
        None => {
            let log = std::fs::read_to_string(log_file(dir)).unwrap_or_default();
            panic!("the server said {line:?} and not where it is; it logged:\n{log}")
        }
    }
}

fn open_log(dir: &Path) -> File {
    let log = OpenOptions::new().create(true).append(true).open(log_file(dir));
    log.expect("a log can be made")
}
