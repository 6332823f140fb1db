//! A node as a process with its own data directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use kalends::settings::keys::KEYS_FILE;
use tempfile::TempDir;

use super::answer::Answer;
use super::ports::free_port;
use super::program::{ExitOutput, Program, child, kalends, signal, tested};
use super::seen_metrics;
use super::sender::Sender;
use super::signer::unix_now_s;
use super::wait::{AT_ONCE, note, until};

/// A running server. It is killed when this is dropped; its data directory exists until then.
///
/// A test fails if any thread of its server panicked.
pub(crate) struct Server {
    process: Child,
    ports: Ports,
    launch: Launch,
    data: TempDir,
}

/// How a server is started, besides its data directory and its addresses.
#[derive(Debug, Clone, Default)]
pub(crate) struct Launch {
    /// The role of the node, which selects its command line.
    pub(crate) role: Role,
    /// Another build of `kalends`, in place of the one that is tested.
    pub(crate) program: Option<PathBuf>,
    /// The address to listen on, if it was chosen before. Otherwise it is a free one.
    pub(crate) port: Option<SocketAddr>,
    /// Arguments in addition to directory and addresses.
    pub(crate) arguments: Vec<String>,
    /// Environment variables of this process only.
    pub(crate) variables: Vec<(&'static str, String)>,
    /// The contents of `keys.toml` before the first start. Without it, the server generates the
    /// file.
    pub(crate) keys: Option<String>,
    /// The soft and the hard limit of open files, if they differ from those of the test.
    pub(crate) open_files: Option<(u32, u32)>,
    /// The file or pipe that its log is written to, in place of that of [`Server::log`].
    pub(crate) log_to: Option<PathBuf>,
    /// The size of a disk that holds only the data directory, and ends with the server.
    pub(crate) disk_mib: Option<u32>,
    /// The data directory, if it is not in a temporary directory of this server: on a mounted disk. The server then ends
    /// with the thread of the test, because a disk does too.
    pub(crate) data_dir: Option<PathBuf>,
}

/// The role of a node in a cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Role {
    /// All roles in one process.
    #[default]
    All,
    Connection,
    Endpoint,
}

/// The addresses that a server listens on.
#[derive(Debug, Clone, Copy)]
struct Ports {
    public: SocketAddr,
    /// The router port, which only connection nodes have.
    router: Option<SocketAddr>,
}

/// A server that ended before it printed its addresses.
#[derive(Debug)]
pub(crate) struct NotStarted {
    printed: String,
    logged: String,
}

/// The start of the line with the public address.
const GREETING: &str = "Kalends is listening on ";

/// The start of the line with the router port of a connection node.
const ROUTER: &str = "Router port: ";

/// The longest wait for the metrics of a server that is about to end.
const METRICS_WAIT: Duration = Duration::from_secs(2);

/// A free port on the loopback interface.
const ANY_PORT: &str = "127.0.0.1:0";

impl Server {
    /// Starts a server on a free port with an empty data directory.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Like [`start`](Self::start), with more arguments for `kalends serve`.
    pub(crate) fn start_with(arguments: &[&str]) -> Self {
        Self::launch(Launch::default().with(arguments))
    }

    /// Starts a server with these launch parameters.
    pub(crate) fn launch(launch: Launch) -> Self {
        Self::try_launch(launch).unwrap_or_else(|not| panic!("{not}"))
    }

    /// Like [`launch`](Self::launch), or fails if the server ends at once.
    pub(crate) fn try_launch(launch: Launch) -> Result<Self, NotStarted> {
        let data = TempDir::new().expect("a temporary directory can be made");
        if let Some(keys) = &launch.keys {
            put_keys(&data_dir(data.path()), keys);
        }
        let (process, ports) = spawn(data.path(), None, &launch)?;
        Ok(Self { process, ports, launch, data })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.ports.public
    }

    /// The start of endpoints and the audience of VAPID tokens.
    pub(crate) fn origin(&self) -> String {
        format!("http://{}", self.address())
    }

    /// The URL that user agents connect to.
    pub(crate) fn socket_url(&self) -> String {
        format!("ws://{}/", self.address())
    }

    /// The URL of a connection node's router port, which is also its id in router records.
    pub(crate) fn router_url(&self) -> String {
        format!("http://{}", self.ports.router.expect("it is a connection node"))
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.launch.data_dir(self.data.path())
    }

    /// The data directory as the server sees it, with a [disk](Launch::disk_mib) of its own.
    pub(crate) fn disk(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.pid()));
        root.join(self.data_dir().strip_prefix("/").expect("a temporary directory is absolute"))
    }

    /// The time by the clock of the server, in seconds since the epoch.
    pub(crate) fn now_s(&self) -> u64 {
        let offsets = self.launch.arguments.iter();
        let offset =
            offsets.filter_map(|argument| argument.strip_prefix("--clock-offset-s=")).next_back();
        let offset = offset.map_or(0, |seconds| seconds.parse::<i64>().expect("a number"));
        unix_now_s().saturating_add_signed(offset)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The number of connected agents, as the health endpoint reports it.
    pub(crate) async fn connections(&self) -> u64 {
        let health = self.health().await;
        assert_eq!(health.status, 200, "{health}");
        health.json()["connections"].as_u64().expect("connections are counted")
    }

    /// The resident memory of the process, in KiB.
    pub(crate) fn memory_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.expect("the server runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        kib.and_then(|kib| kib.parse().ok()).expect("Linux reports the resident memory")
    }

    /// The processor time of the process.
    pub(crate) fn cpu_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid()));
        let stat = stat.expect("the server runs");
        // User and system time follow the name by 12 fields, in hundredths of a second.
        let (_, fields) = stat.rsplit_once(')').expect("the name is in brackets");
        let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
        Duration::from_millis(ticks.map(|ticks| ticks.expect("digits") * 10).sum())
    }

    /// The log of all runs of this server.
    pub(crate) fn log(&self) -> String {
        let log = fs::read_to_string(log_file(self.data.path())).expect("the server has a log");
        note(&log);
        log
    }

    /// Waits for a line with this text in the log, which is written in the background.
    pub(crate) async fn logged(&self, text: &str) -> String {
        let mut found = None;
        until(AT_ONCE, text, async || {
            let log = self.log();
            let mut lines = log.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            found = lines.find(|line| line.contains(text)).map(str::to_owned);
            found.is_some()
        })
        .await;
        found.expect("waited for")
    }

    /// Kills the process with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.record_metrics();
        self.process.kill().expect("the server runs");
        self.process.wait().expect("a killed process ends");
    }

    /// Sends SIGTERM and waits for the end of the process.
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        self.record_metrics();
        self.signal("TERM");
        self.process.wait().expect("a process can be waited for")
    }

    /// Reads the metrics for the list of those that no test has seen. A server that has none or does not answer is left out.
    fn record_metrics(&mut self) {
        if let Ok(None) = self.process.try_wait()
            && let Some(text) = self.metrics_text()
        {
            seen_metrics::record(&text);
        }
    }

    fn metrics_text(&self) -> Option<String> {
        let log = fs::read_to_string(log_file(self.data.path())).ok()?;
        let line = log.lines().rfind(|line| line.contains("listening for scrapers of metrics"))?;
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        let mut stream = TcpStream::connect(line["address"].as_str()?).ok()?;
        stream.set_read_timeout(Some(METRICS_WAIT)).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
    }

    /// Waits for the end of the process, which must follow within `bound`.
    pub(crate) async fn ended_within(&mut self, bound: Duration) -> ExitStatus {
        let mut ended = None;
        until(bound, "the server ends", async || {
            ended = self.process.try_wait().expect("a process can be waited for");
            ended.is_some()
        })
        .await;
        ended.expect("waited for")
    }

    /// Sends the signal with this name, such as `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    /// A `kalends` command on the data directory of the server.
    pub(crate) fn command(&self, words: &[&str]) -> tokio::process::Command {
        let mut command = kalends(words);
        command.arg("--data-dir").arg(self.data_dir());
        command
    }

    /// Runs a `kalends` command on the data directory of the server.
    pub(crate) async fn run(&self, words: &[&str]) -> ExitOutput {
        Program::run(self.command(words)).await
    }

    /// Waits until the server reports to load balancers that it drains.
    pub(crate) async fn drains(&self, bound: Duration) {
        let (sender, beat) = (Sender::new(), format!("{}/__lbheartbeat__", self.origin()));
        let drains = async || sender.get(&beat).await.status == 503;
        until(bound, "the node reports that it drains", drains).await;
        assert_eq!(sender.get(&beat).await.body, br#"{"status":"draining"}"#);
    }

    /// The answer to `GET /health`.
    pub(crate) async fn health(&self) -> Answer {
        Sender::new().get(&format!("{}/health", self.origin())).await
    }

    /// Starts the server again after it ended, with the same data and ports.
    pub(crate) fn restart(&mut self) {
        self.try_restart().unwrap_or_else(|not| panic!("{not}"));
    }

    /// Like [`restart`](Self::restart), or fails if the server ends at once, for instance without
    /// its store.
    pub(crate) fn try_restart(&mut self) -> Result<(), NotStarted> {
        (self.process, self.ports) = spawn(self.data.path(), Some(self.ports), &self.launch)?;
        Ok(())
    }

    /// Kills the process with SIGKILL, and starts the server again.
    pub(crate) fn crash(&mut self) {
        self.kill();
        self.restart();
    }

    /// Starts the server again with other launch parameters.
    pub(crate) fn restart_as(&mut self, launch: Launch) {
        self.launch = launch;
        self.restart();
    }
}

impl Launch {
    pub(crate) fn with<S: AsRef<str>>(mut self, arguments: &[S]) -> Self {
        self.arguments.extend(arguments.iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// A `kalends` command with the same arguments and variables.
    pub(crate) fn command(&self, words: &[&str]) -> tokio::process::Command {
        let mut command = kalends(words);
        command.args(&self.arguments).envs(self.variables.iter().cloned());
        command
    }

    fn data_dir(&self, home: &Path) -> PathBuf {
        self.data_dir.clone().unwrap_or_else(|| data_dir(home))
    }
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Connection => "connection",
            Self::Endpoint => "endpoint",
        }
    }

    /// The addresses to listen on: free ports at the first start, the previous ones afterwards.
    fn listen(self, before: Option<Ports>) -> Vec<String> {
        let port = |before: Option<SocketAddr>| before.unwrap_or_else(free_port).to_string();
        let public = port(before.map(|ports| ports.public));
        let mut flags = vec!["--listen".to_owned(), public];
        if self == Self::Connection {
            let router = port(before.and_then(|ports| ports.router));
            flags.extend(["--router-listen".to_owned(), router]);
        }
        flags
    }
}

impl Ports {
    /// Parses the lines that the server prints first.
    fn read(
        role: Role,
        mut lines: impl Iterator<Item = io::Result<String>>,
    ) -> Result<Self, String> {
        let mut address = |greeting: &str| {
            let line = lines.next().and_then(Result::ok).unwrap_or_default();
            let address = line.strip_prefix(greeting).and_then(|rest| rest.split(',').next());
            let address = address.and_then(|url| url.split("://").last());
            address.and_then(|address| address.trim().parse().ok()).ok_or(line)
        };
        let public = address(GREETING)?;
        let router = (role == Role::Connection).then(|| address(ROUTER)).transpose()?;
        Ok(Self { public, router })
    }
}

impl std::fmt::Display for NotStarted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { printed, logged } = self;
        write!(f, "the server printed {printed:?} instead of its address; it logged:\n{logged}")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.record_metrics();
        // Fails if the process has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let log = self.log();
        if std::thread::panicking() {
            eprintln!("the server logged:\n{log}");
        } else {
            assert!(!log.contains("panicked"), "the server panicked:\n{log}");
        }
    }
}

/// The directory is created by the server.
fn data_dir(dir: &Path) -> PathBuf {
    dir.join("data")
}

fn log_file(dir: &Path) -> PathBuf {
    dir.join("log")
}

/// Writes a key file with mode 0600 into a directory, which is made.
pub(crate) fn put_keys(data_dir: &Path, keys: &str) {
    let write = || {
        fs::create_dir_all(data_dir)?;
        let mut file = OpenOptions::new();
        file.create(true).truncate(true).write(true).mode(0o600);
        file.open(data_dir.join(KEYS_FILE))?.write_all(keys.as_bytes())
    };
    io::Result::expect(write(), "a file can be written");
}

fn spawn(dir: &Path, before: Option<Ports>, launch: &Launch) -> Result<(Child, Ports), NotStarted> {
    let chosen = launch.port.map(|public| Ports { public, router: None });
    let before = chosen.or(before);
    let mut process = command(dir, launch)
        .args(["serve", "--role", launch.role.name()])
        .arg("--data-dir")
        .arg(launch.data_dir(dir))
        .args(launch.role.listen(before))
        .args(&launch.arguments)
        // Servers of tests run beside each other.
        .env("KALENDS_METRICS_LISTEN", ANY_PORT)
        // A server that takes its time would do what a test has a command do.
        .env("KALENDS_MAINTENANCE", "false")
        .envs(launch.variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(open_log(dir, launch))
        .spawn()
        .expect("the server can be started");
    let output = process.stdout.take().expect("standard output is a pipe");
    match Ports::read(launch.role, BufReader::new(output).lines()) {
        Ok(ports) => Ok((process, ports)),
        Err(printed) => {
            // The process has ended, or its first line is not an address.
            let _ = process.kill();
            let _ = process.wait();
            let logged = fs::read_to_string(log_file(dir)).unwrap_or_default();
            Err(NotStarted { printed, logged })
        }
    }
}

fn command(dir: &Path, launch: &Launch) -> Command {
    let program = &launch.program.clone().unwrap_or_else(tested);
    if let Some(mib) = launch.disk_mib {
        return on_disk(&data_dir(dir), mib, program);
    }
    if launch.data_dir.is_some() {
        let mut command = child("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(program);
        return command;
    }
    let Some((soft, hard)) = launch.open_files else { return child(program) };
    let mut shell = child("sh");
    let script = format!("ulimit -Sn {soft} && ulimit -Hn {hard} && exec \"$0\" \"$@\"");
    shell.arg("-c").arg(script).arg(program);
    shell
}

/// Mounts a disk for `program` alone, in namespaces of its own. Needs no root where users may make these namespaces;
/// otherwise the server does not start, and its log has the error of `unshare`.
fn on_disk(dir: &Path, mib: u32, program: &Path) -> Command {
    fs::create_dir_all(dir).expect("a directory can be made");
    let mut command = child("unshare");
    let script = format!("mount -t tmpfs -o size={mib}m,mode=700 disk \"$0\" && exec \"$@\"");
    command.args(["--map-root-user", "--mount", "sh", "-c", &script]).arg(dir).arg(program);
    command
}

fn open_log(dir: &Path, launch: &Launch) -> File {
    let log = OpenOptions::new().create(true).append(true).open(log_file(dir));
    let log = log.expect("a log can be made");
    let Some(other) = &launch.log_to else { return log };
    OpenOptions::new().write(true).open(other).expect("it can be written")
}
