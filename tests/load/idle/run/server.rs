//! The process of the server: its start, its end and its log.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{Plan, Result};
use crate::shared::group::own_group;

/// Where the server listens. Other programs have no ports there, so that a restart finds its port free.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 2, 0, 1);

/// The start of the first line of a server.
const GREETING: &str = "Kalends is listening on http://";

/// An interval between pings that does not end during a measurement.
const NO_PING_S: u64 = 86_400;

/// Bytes at the end of the log that an error shows.
const LOG_TAIL_BYTES: usize = 2000;

/// Longest wait for the first line of the server, and longest part of it that is read.
const START_WAIT: Duration = Duration::from_secs(30);
const LINE_BYTES_MAX: u64 = 1000;

/// Interval between two looks at whether the run was interrupted.
const LOOK: Duration = Duration::from_millis(50);

/// The server and its data.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    process: Process,
    data: PathBuf,
    log: PathBuf,
    _dir: TempDir,
}

/// A process that is killed when this is dropped.
struct Process(Child);

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
        self.process.0.id()
    }

    /// Sends SIGTERM, and does not wait.
    pub(crate) fn terminate(&self) {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        // Fails if it has ended.
        let _ = kill_process(pid.expect("a process has an id"), Signal::TERM);
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.process.0.try_wait(), Ok(None))
    }

    /// An error if the server has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.process.0.try_wait() {
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

impl Drop for Process {
    fn drop(&mut self) {
        // Fails if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn spawn(
    plan: &Plan,
    address: SocketAddr,
    ping_s: u64,
    data: &PathBuf,
    log: &PathBuf,
) -> Result<(Process, SocketAddr)> {
    let file = OpenOptions::new().append(true).create(true).open(log);
    let file: File = file.map_err(|error| format!("no log at {}: {error}", log.display()))?;
    let ping_s = if ping_s == 0 { NO_PING_S } else { ping_s };
    // Room for a worker that has more connections than another.
    let connections = plan.agents + plan.agents / 4 + 1000;
    let process = Command::new(&plan.kalends)
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
        .process_group(own_group())
        .spawn()
        .map_err(|error| {
            let path = plan.kalends.display();
            format!(
                "{path} cannot be started: {error}: --kalends is the path of a `kalends` program"
            )
        })?;
    let mut process = Process(process);
    let output = process.0.stdout.take().expect("it was piped");
    let line = first_line(plan, output).map_err(|error| format!("{error}. {}", log_tail(log)))?;
    let address = line.strip_prefix(GREETING).and_then(|address| address.trim_end().parse().ok());
    address.map(|address| (process, address)).ok_or_else(|| {
        format!(
            "the server printed {line:?} in place of \"{GREETING}ADDRESS\": --kalends is the path of a `kalends` \
            program. {}",
            log_tail(log)
        )
    })
}

/// The first line that the server prints. It is an error if it ends without one.
fn first_line(plan: &Plan, output: ChildStdout) -> Result<String> {
    let (lines, line) = channel();
    // It ends with its line, or with the process.
    thread::spawn(move || {
        let mut line = String::new();
        // What cannot be read is no greeting.
        let _ = BufReader::new(output.take(LINE_BYTES_MAX)).read_line(&mut line);
        // Fails if the wait is over.
        let _ = lines.send(line);
    });
    let begun = Instant::now();
    loop {
        plan.check_interrupted()?;
        match line.recv_timeout(LOOK) {
            Ok(line) if !line.is_empty() => return Ok(line),
            Err(RecvTimeoutError::Timeout) if begun.elapsed() < START_WAIT => {}
            Err(RecvTimeoutError::Timeout) => {
                return Err(format!("the server printed no line for {} s", START_WAIT.as_secs()));
            }
            Ok(_) | Err(RecvTimeoutError::Disconnected) => {
                return Err("the server does not start".to_owned());
            }
        }
    }
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
