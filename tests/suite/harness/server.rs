//! `kalends serve`, `connect` or `endpoint` as a process, in a data directory of its own.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use kalends::keys::KEYS_FILE;
use serde_json::Value;
use tempfile::TempDir;

use super::sender::Sender;
use super::wait::until;

/// A running server. Killed when dropped; its data directory lives until then.
///
/// A server that panicked anywhere, in whatever thread, fails the test it served.
pub(crate) struct Server {
    process: Child,
    ports: Ports,
    launch: Launch,
    data: TempDir,
}

/// How a server is started, beside where its data is and where it listens.
#[derive(Debug, Clone, Default)]
pub(crate) struct Launch {
    /// What it is.
    pub(crate) role: Role,
    /// More arguments for it.
    pub(crate) arguments: Vec<String>,
    /// Environment variables of that process only.
    pub(crate) variables: Vec<(&'static str, String)>,
    /// What is in its `keys.toml` before its first start; where nothing is, it makes one.
    pub(crate) keys: Option<String>,
}

/// What a server is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Role {
    /// All in one process.
    #[default]
    Serve,
    /// A connection node.
    Connect,
    /// An endpoint node.
    Endpoint,
}

/// Where a server listens.
#[derive(Debug, Clone, Copy)]
struct Ports {
    public: SocketAddr,
    /// Of a connection node.
    router: Option<SocketAddr>,
}

/// A server that did not say where it is.
#[derive(Debug)]
pub(crate) struct NotStarted {
    said: String,
    logged: String,
}

/// The line that says where the server is.
const GREETING: &str = "Kalends is listening on http://";

/// The line that says where a connection node's router port is.
const ROUTER: &str = "Router port: http://";

/// A free port of this machine.
const ANY_PORT: &str = "127.0.0.1:0";

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
        if let Some(keys) = &launch.keys {
            put_keys(&data_dir(data.path()), keys).expect("a file can be written");
        }
        let spawned = spawn(data.path(), None, &launch);
        let (process, ports) = spawned.unwrap_or_else(|not| panic!("{not}"));
        Self { process, ports, launch, data }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.ports.public
    }

    /// What endpoints begin with and VAPID tokens must name.
    pub(crate) fn origin(&self) -> String {
        format!("http://{}", self.address())
    }

    /// What user agents connect to.
    pub(crate) fn socket_url(&self) -> String {
        format!("ws://{}/", self.address())
    }

    /// Where the router port of a connection node is, and the node's id in router records.
    pub(crate) fn router_url(&self) -> String {
        format!("http://{}", self.ports.router.expect("it is a connection node"))
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
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.expect("the server runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        kib.and_then(|kib| kib.parse().ok()).expect("Linux says how much memory it has")
    }

    /// What it logged, in all its lives.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(log_file(self.data.path())).expect("the server has a log")
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

    /// Starts it again, after it was killed or terminated: same data, same ports.
    pub(crate) fn restart(&mut self) {
        self.try_restart().unwrap_or_else(|not| panic!("{not}"));
    }

    /// The same, if it starts: where its store is away, it says so and ends.
    pub(crate) fn try_restart(&mut self) -> Result<(), NotStarted> {
        (self.process, self.ports) = spawn(self.data.path(), Some(self.ports), &self.launch)?;
        Ok(())
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

impl Role {
    fn command(self) -> &'static str {
        match self {
            Self::Serve => "serve",
            Self::Connect => "connect",
            Self::Endpoint => "endpoint",
        }
    }

    /// Where it is to listen: at free ports, or where it was before.
    fn listen(self, before: Option<Ports>) -> Vec<String> {
        let port = |before: Option<SocketAddr>| {
            before.map_or_else(|| ANY_PORT.to_owned(), |address| address.to_string())
        };
        let public = port(before.map(|ports| ports.public));
        let mut flags = vec!["--listen".to_owned(), public];
        if self == Self::Connect {
            let router = port(before.and_then(|ports| ports.router));
            flags.extend(["--router-listen".to_owned(), router]);
        }
        flags
    }
}

impl Ports {
    /// Reads what the server says first.
    fn read(
        role: Role,
        mut lines: impl Iterator<Item = io::Result<String>>,
    ) -> Result<Self, String> {
        let mut address = |greeting: &str| {
            let line = lines.next().and_then(Result::ok).unwrap_or_default();
            let address = line.strip_prefix(greeting).and_then(|rest| rest.split(',').next());
            address.and_then(|address| address.trim().parse().ok()).ok_or(line)
        };
        let public = address(GREETING)?;
        let router = (role == Role::Connect).then(|| address(ROUTER)).transpose()?;
        Ok(Self { public, router })
    }
}

impl std::fmt::Display for NotStarted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { said, logged } = self;
        write!(f, "the server said {said:?} and not where it is; it logged:\n{logged}")
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

/// A file that only its owner may read, in a directory that is made for it.
fn put_keys(data_dir: &Path, keys: &str) -> io::Result<()> {
    fs::create_dir(data_dir)?;
    let mut file = OpenOptions::new();
    let mut file = file.create_new(true).write(true).mode(0o600).open(data_dir.join(KEYS_FILE))?;
    file.write_all(keys.as_bytes())
}

fn spawn(dir: &Path, before: Option<Ports>, launch: &Launch) -> Result<(Child, Ports), NotStarted> {
    let mut process = Command::new(env!("CARGO_BIN_EXE_kalends"))
        .arg(launch.role.command())
        .arg("--data-dir")
        .arg(data_dir(dir))
        .args(launch.role.listen(before))
        .args(&launch.arguments)
        .envs(launch.variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(open_log(dir))
        .spawn()
        .expect("the server can be started");
    let output = process.stdout.take().expect("standard output is a pipe");
    match Ports::read(launch.role, BufReader::new(output).lines()) {
        Ok(ports) => Ok((process, ports)),
        Err(said) => {
            // It ended by itself, or says what nobody understands.
            let _ = process.kill();
            let _ = process.wait();
            let logged = fs::read_to_string(log_file(dir)).unwrap_or_default();
            Err(NotStarted { said, logged })
        }
    }
}

fn open_log(dir: &Path) -> File {
    let log = OpenOptions::new().create(true).append(true).open(log_file(dir));
    log.expect("a log can be made")
}
