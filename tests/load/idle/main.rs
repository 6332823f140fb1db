//! Measures a server that holds many idle user agents.
//!
//! `--help` describes a run and its arguments, [docs/capacity.md](../../../docs/capacity.md) what the figures mean.

mod run;

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, value_parser};

use run::{Plan, Report, Result, measure};

/// Measures a server that holds many idle user agents: memory, CPU, latency of pushes, and the return of all after a
/// restart
///
/// It starts the server on a free port of 127.2.0.1 and ends it. A run has five phases:
///
/// 1. all agents connect, send hello and register a channel, from 127.1.0.1 on, 14,000 from each address;
/// 2. they are idle, and answer pings; the phase begins one interval of pings after the last connect;
/// 3. pushes are sent to random agents over 16 connections, and acked;
/// 4. SIGTERM, a new start, and all agents return with their uaid, as many at once as in phase 1. Refused ones wait as
///    long as `Retry-After`, or 1 to 16 s;
/// 5. they are idle without pings, for comparison.
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

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(report) => {
            print!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> Result<Report> {
    // A file that cannot be written is noticed before the run.
    if let Some(file) = &args.json {
        OpenOptions::new()
            .append(true)
            .create(true)
            .open(file)
            .map_err(|error| unwritable(file, &error))?;
    }
    let report = measure(&Plan {
        kalends: args.kalends,
        arguments: args.serve_args.split_whitespace().map(str::to_owned).collect(),
        data_dir: args.data_dir,
        agents: args.agents as usize,
        connecting_max: args.connecting as usize,
        ping_s: args.ping_s,
        pushes_per_second: args.pushes_per_second as usize,
        seconds: args.seconds,
    })?;
    if let Some(file) = &args.json {
        let json = serde_json::to_string(&report).expect("numbers and texts always serialise");
        fs::write(file, format!("{json}\n")).map_err(|error| unwritable(file, &error))?;
    }
    Ok(report)
}

fn unwritable(file: &Path, error: &io::Error) -> String {
    format!("{} cannot be written: {error}: --json is the path of a file", file.display())
}
