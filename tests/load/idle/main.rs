//! Measures a server that holds many idle user agents.
//!
//! `--help` describes a run and its arguments, [docs/capacity.md](../../../docs/capacity.md) what the figures mean.

#![expect(
    clippy::disallowed_methods,
    reason = "a measurement writes files that no power loss meets"
)]

mod run;
#[expect(dead_code, reason = "each tool uses a part")]
#[path = "../shared/mod.rs"]
mod shared;

use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Parser, value_parser};
use tempfile::NamedTempFile;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::spawn_blocking;

use run::{Plan, Report, Result, measure};

/// Measures a server that holds many idle user agents: memory, CPU, latency of pushes, and the return of all after a
/// restart
///
/// It starts the server on a free port of 127.2.0.1 and ends it. A run has five phases:
///
/// 1. all agents connect, send hello and register a channel, from 127.1.0.1 on, 14,000 from each address. The first
///    3,000, or 10 %, and at most half, do so before the others, and memory is measured from there;
/// 2. they are idle, and answer pings; the phase begins one interval of pings after the last connect;
/// 3. pushes are sent to random agents over 16 connections, and acked;
/// 4. SIGTERM, a new start, and all agents return with their uaid, as many at once as in phase 1. Refused ones wait as
///    long as `Retry-After`, or 1 to 16 s;
/// 5. they are idle without pings, as long as in phase 2, for comparison.
///
/// The table is on standard output, progress on standard error. Server and agents need one open file for each agent:
/// raise the limit first (`ulimit -n`). A million agents need about 13 GiB beside the data directory.
#[derive(Debug, Parser)]
#[command(version, verbatim_doc_comment)]
struct Args {
    /// The program `kalends`, of a release build
    #[arg(long, value_name = "PATH")]
    kalends: PathBuf,
    /// Number of user agents
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000, value_parser = value_parser!(u32).range(1..=5_000_000))]
    agents: u32,
    /// User agents that connect at once
    #[arg(long, value_name = "NUMBER", default_value_t = 256, value_parser = value_parser!(u32).range(1..=100_000))]
    connecting: u32,
    /// Silence of an agent after which the server pings it (`keepalive_interval_s`); 0 is no ping
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = value_parser!(u64).range(..=86_400))]
    ping_s: u64,
    /// Pushes in a second, each to a random agent
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = value_parser!(u32).range(1..=100_000))]
    pushes_per_second: u32,
    /// Duration of phases 2, 3 and 5; that of phase 2 is at least one interval of pings
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// The data directory of the server, instead of a temporary one
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// More arguments for `kalends serve`, separated by spaces, such as "--connects-per-second-max 2000"; the limit of
    /// connects is off by default
    #[arg(long, default_value = "", allow_hyphen_values = true, hide_default_value = true)]
    serve_args: String,
    /// Where to write the figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args = Args::parse();
    let interrupted = Arc::new(AtomicBool::new(false));
    let signals = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
    let [mut interrupt, mut terminate] = signals.map(|it| it.expect("signals can be received"));
    let mut running = spawn_blocking({
        let interrupted = interrupted.clone();
        move || run(args, interrupted)
    });
    loop {
        tokio::select! {
            result = &mut running => {
                let result = result.expect("a run does not panic");
                return ended(result, interrupted.load(Ordering::Relaxed));
            }
            _ = interrupt.recv() => interrupted.store(true, Ordering::Relaxed),
            _ = terminate.recv() => interrupted.store(true, Ordering::Relaxed),
        }
    }
}

fn ended(result: Result<Report>, is_interrupted: bool) -> ExitCode {
    match result {
        Ok(report) => {
            print!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) if is_interrupted => {
            eprintln!("{error}");
            ExitCode::from(130)
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args, interrupted: Arc<AtomicBool>) -> Result<Report> {
    // A file that cannot be written is noticed before the run.
    let json = match &args.json {
        Some(file) => Some((file, new_file(file).map_err(|error| unwritable(file, &error))?)),
        None => None,
    };
    let report = measure(&Plan {
        kalends: args.kalends,
        arguments: args.serve_args.split_whitespace().map(str::to_owned).collect(),
        data_dir: args.data_dir,
        agents: args.agents as usize,
        connecting_max: args.connecting as usize,
        ping_s: args.ping_s,
        pushes_per_second: args.pushes_per_second as usize,
        seconds: args.seconds,
        interrupted,
    })?;
    if let Some((file, mut new)) = json {
        let json = serde_json::to_string(&report).expect("numbers and texts always serialise");
        let written = writeln!(new, "{json}").and_then(|()| Ok(new.persist(file)?));
        written.map_err(|error| unwritable(file, &error))?;
    }
    Ok(report)
}

/// A file in the same folder, which replaces this one when the run is complete.
fn new_file(file: &Path) -> io::Result<NamedTempFile> {
    if file.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mode = Permissions::from_mode(0o644);
    tempfile::Builder::new().permissions(mode).tempfile_in(folder)
}

fn unwritable(file: &Path, error: &io::Error) -> String {
    format!("{} cannot be written: {error}: --json is the path of a file", file.display())
}
