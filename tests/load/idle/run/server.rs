//! The process of the server: its start, its end and its log.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{Plan, Result};

/// Where the server listens. Other programs have no ports there, so that a restart finds its port free.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 2, 0, 1);

/// The start of the first line of a server.
const GREETING: &str = "Kalends is listening on http://";

/// An interval between pings that does not end during a measurement.
const NO_PING_S: u64 = 86_400;

/// Bytes at the end of the log that an error shows.
const LOG_TAIL_BYTES: usize = 2000;

/// A process that is killed when this is dropped, and its data.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    process: Child,
    data: PathBuf,
    log: PathBuf,
    _dir: TempDir,
}

impl Server {
    /// Starts the server on an empty data directory, or the one of the plan.
    pub(crate) fn start(plan: &Plan) -> Result<Self> {
        let dir = TempDir::new().map_err(|error| {
            format!("no temporary folder: {error}: set TMPDIR to a folder that is writable")
        })?;
        let data = plan.data_dir.clone().unwrap_or_else(|| dir.path().join("data"));
        let log = dir.path().join("log");
        let address = SocketAddr::from((ADDRESS, 0));
        let (process, address) = spawn(plan, address, plan.ping_s, &data, &log)?;
        Ok(Self { address, process, data, log, _dir: dir })
    }

    /// Starts the server again, without pings, when [`has_ended`](Self::has_ended).
    pub(crate) fn start_again(&mut self, plan: &Plan) -> Result<()> {
        (self.process, _) = spawn(plan, self.address, 0, &self.data, &self.log)?;
        Ok(())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Sends SIGTERM, and does not wait.
    pub(crate) fn terminate(&self) {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        // Fails if it has ended.
        let _ = kill_process(pid.expect("a process has an id"), Signal::TERM);
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.process.try_wait(), Ok(None))
    }

    /// An error if the server has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.process.try_wait() {
            Ok(None) => Ok(()),
            end => Err(format!(
                "the server has ended ({}). After signal 9 the kernel had no memory for it (see dmesg): try fewer \
                --agents. {}",
                end.ok().flatten().map_or("unknown".to_owned(), |status| status.to_string()),
                self.log_tail()
            )),
        }
    }

    /// The end of its log, for an error.
    pub(crate) fn log_tail(&self) -> String {
        log_tail(&self.log)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails if it has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(
    plan: &Plan,
    address: SocketAddr,
    ping_s: u64,
    data: &PathBuf,
    log: &PathBuf,
) -> Result<(Child, SocketAddr)> {
    let file = OpenOptions::new().append(true).create(true).open(log);
    let file: File = file.map_err(|error| format!("no log at {}: {error}", log.display()))?;
    let ping_s = if ping_s == 0 { NO_PING_S } else { ping_s };
    // Room for a worker that has more connections than another.
    let connections = plan.agents + plan.agents / 4 + 1000;
    let mut process = Command::new(&plan.kalends)
        .args(["serve", "--listen", &address.to_string(), "--data-dir"])
        .arg(data)
        .args(&plan.arguments)
        // Arguments take precedence over the environment, so that a plan can change each of these.
        .env("KALENDS_CONNECTIONS_MAX", connections.to_string())
        .env("KALENDS_CONNECTS_PER_SECOND_MAX", "0")
        .env("KALENDS_KEEPALIVE_INTERVAL_S", ping_s.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(file)
        .spawn()
        .map_err(|error| {
            let path = plan.kalends.display();
            format!(
                "{path} cannot be started: {error}: --kalends is the path of a `kalends` program"
            )
        })?;
    let mut line = String::new();
    let output = process.stdout.take().expect("it was piped");
    // Fails with the line.
    let _ = BufReader::new(output).read_line(&mut line);
    let address = line.strip_prefix(GREETING).and_then(|address| address.trim_end().parse().ok());
    address
        .map(|address| (process, address))
        .ok_or_else(|| format!("the server does not start. {}", log_tail(log)))
}

fn log_tail(log: &PathBuf) -> String {
    let mut text = String::new();
    // Without a log there is no tail of it.
    let _ = File::open(log).and_then(|mut file| file.read_to_string(&mut text));
    let mut start = text.len().saturating_sub(LOG_TAIL_BYTES);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    let data = fs::metadata(log).map_or("has no log", |_| "logged");
    format!("It {data}: {}", &text[start..])
}
