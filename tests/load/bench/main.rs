//! Measures what each operation costs, as a ratio to a server that does nothing but pass frames on.
//!
//! ```text
//! bench --kalends PATH [--before PATH] [--rounds 3] [--baseline FILE [--write-baseline]] [--json]
//! bench floor
//! ```
//!
//! Each round has the floor, the program `--before` and `--kalends` in turn, in each phase on a new server on a free
//! port of 127.0.0.1. The result is a table or JSON on standard output; the comparison with the baseline and the
//! progress are on standard error. The exit status is 1 if an operation costs more than the baseline allows, 2 if
//! something could not be measured, and 130 after an interrupt. `bench floor` is the floor.

#![expect(
    clippy::disallowed_methods,
    reason = "a measurement writes files that no power loss meets"
)]

mod baseline;
mod floor;
mod load;
mod phase;
mod results;
mod server;
#[expect(dead_code, reason = "each tool uses a part")]
#[path = "../shared/mod.rs"]
mod shared;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use mimalloc::MiMalloc;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use baseline::Baseline;
use load::Sizes;
use phase::Phase;
use results::Results;
use server::{Program, Server};
use shared::limits::raise_open_file_limit;

/// Of the floor, as it is Kalends' own.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Maximum time of a phase of one program.
const PHASE_WAIT: Duration = Duration::from_secs(600);

/// What to do about a regression.
const REPEAT: &str = "stop other programs and repeat with ROUNDS=9";

/// Measures the cost of each operation, and compares it with a stored one
#[derive(Debug, Parser)]
struct Args {
    /// The program `kalends`, of a release build
    #[arg(long, value_name = "PATH")]
    kalends: PathBuf,
    /// Another build of it, which is measured in the same rounds
    #[arg(long, value_name = "PATH")]
    before: Option<PathBuf>,
    /// Rounds, of which the medians are taken
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// The stored ratios to compare with
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Store the ratios of this run there
    #[arg(long, requires = "baseline")]
    write_baseline: bool,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    sizes: Sizes,
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("floor") {
        return floor::serve().map_or_else(|error| failed(&error), |()| ExitCode::SUCCESS);
    }
    bench(&Args::parse())
}

#[tokio::main(flavor = "current_thread")]
async fn bench(args: &Args) -> ExitCode {
    let interrupted = interrupted();
    // The servers are killed when their future is dropped.
    tokio::select! {
        result = compare(args) => result.unwrap_or_else(|error| failed(&error)),
        () = interrupted => ExitCode::from(130),
    }
}

fn failed(error: &io::Error) -> ExitCode {
    eprintln!("bench: {error}");
    ExitCode::from(2)
}

/// Ends after a signal, which is caught from this call on.
fn interrupted() -> impl Future<Output = ()> {
    let signals = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
    let [mut interrupt, mut terminate] = signals.map(|it| it.expect("signals can be received"));
    async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}

async fn compare(args: &Args) -> io::Result<ExitCode> {
    let stored = match &args.baseline {
        Some(path) if !args.write_baseline || path.exists() => Some(Baseline::read(path)?),
        Some(_) | None => None,
    };
    let results = measure(args).await?;
    match args.json {
        true => println!("{:#}", results.json()),
        false => print!("{}", results.table(stored.as_ref()).map_err(io::Error::other)?),
    }
    if let (Some(path), true) = (&args.baseline, args.write_baseline) {
        Baseline::of(&results, stored.as_ref())?.write(path)?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some(verdict) = stored.map(|stored| stored.judge(&results)) else {
        return Ok(ExitCode::SUCCESS);
    };
    verdict.improvements.iter().for_each(|change| eprintln!("improved: {change}"));
    verdict.regressions.iter().for_each(|change| eprintln!("regressed: {change}"));
    match verdict.regressions.len() {
        0 => eprintln!("no regression"),
        1 => eprintln!("1 regression: {REPEAT}"),
        count => eprintln!("{count} regressions: {REPEAT}"),
    }
    Ok(ExitCode::from(u8::from(!verdict.regressions.is_empty())))
}

async fn measure(args: &Args) -> io::Result<Results> {
    let before = args.before.iter().cloned().map(Program::Before);
    let now = Program::Now(args.kalends.clone());
    let programs: Vec<_> = [Program::Floor].into_iter().chain(before).chain([now]).collect();
    raise_open_file_limit()?;
    // A wrong path is noticed before the minutes of the first phases.
    for program in &programs {
        program.start().await?.end().await?;
    }
    let mut results = Results::default();
    for round in 1..=args.rounds {
        for phase in Phase::value_variants() {
            eprintln!("round {round} of {}: {phase:?}", args.rounds);
            for program in programs.iter().filter(|program| phase.is_for(program)) {
                let server = program.start().await?;
                let measured = timeout(PHASE_WAIT, phase.measure(program, &server, &args.sizes));
                let measured = measured.await.unwrap_or_else(|_| {
                    Err(io::Error::other(format!("not done after {PHASE_WAIT:?}")))
                });
                let figures = measured.map_err(|error| named(*phase, program, &server, &error))?;
                server.end().await?;
                let program = program.to_string();
                figures.into_iter().for_each(|(of, figure)| results.add(&program, of, figure));
            }
        }
    }
    Ok(results)
}

fn named(phase: Phase, program: &Program, server: &Server, error: &io::Error) -> io::Error {
    let log = server.log();
    io::Error::other(format!("{phase:?} of the program {program}: {error}; it logged:\n{log}"))
}
