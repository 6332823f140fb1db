//! Measures what an honest client notices of an attack.
//!
//! ```text
//! soak --kalends PATH [--seconds 30] [--attack NAME,...] [--messages 100000] [--serve-args "ARGUMENTS"] [--ws ADDRESS]
//! ```
//!
//! `--help` lists the attacks. The client sends a direct push, sends a push to an agent that is offline, and connects that agent, each every
//! 100 ms. Beside it one attack after the other runs, each on a server of its own on a free port of 127.0.0.1, or on the
//! one at `--ws`. The result is a table on standard output. The exit status is 1 if the writer was held longer than promised
//! while user agents moved to another month.

#![expect(
    clippy::disallowed_methods,
    reason = "a measurement writes files that no power loss meets"
)]

mod run;
#[expect(dead_code, reason = "each tool uses a part")]
#[path = "../shared/mod.rs"]
mod shared;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use run::{Attack, Plan, Row};

/// The promise of the writer: 99 of 100 commits take at most this long while user agents move to another month.
const COMMIT_P99_MAX_MS: u64 = 50;

/// Measures what an honest client notices of an attack, and prints a table
#[derive(Debug, Parser)]
struct Args {
    /// The program `kalends`, of a release build
    #[arg(long, value_name = "PATH")]
    kalends: PathBuf,
    /// Duration of each attack
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// The attacks, instead of all
    #[arg(long = "attack", value_enum, value_delimiter = ',')]
    attacks: Vec<Attack>,
    /// Messages that wait for the attackers' agents before `carry` and `backlogs`
    #[arg(long, default_value_t = 100_000)]
    messages: usize,
    /// More arguments for `kalends serve`, separated by spaces
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    serve_args: String,
    /// A server that runs, instead of one of its own; without the attacks that need other arguments
    #[arg(long, value_name = "ADDRESS")]
    ws: Option<SocketAddr>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args = Args::parse();
    let attacks = match args.attacks.is_empty() {
        true => Attack::value_variants(),
        false => args.attacks.as_slice(),
    };
    let plan = Plan {
        kalends: args.kalends,
        arguments: args.serve_args.split_whitespace().map(str::to_owned).collect(),
        running: args.ws,
        duration: Duration::from_secs(args.seconds),
        messages: args.messages,
    };
    let names: Vec<_> = Attack::value_variants().iter().map(Attack::to_string).collect();
    println!("Attacks: {}.", names.join(", "));
    println!(
        "`make soak ATTACK=fill SECONDS=3600` selects some by their names, and the duration of each.\n"
    );
    println!("{}", Row::HEAD);
    let mut held_too_long = false;
    for attack in attacks.iter().filter(|attack| plan.allows(**attack)) {
        let row = run::measure(&plan, *attack).await;
        println!("{row}");
        let p99_ms = row.commits.as_ref().map(|commits| commits.percentile_ms(99));
        held_too_long |= row.attack == Attack::Carry && p99_ms > Some(COMMIT_P99_MAX_MS);
    }
    if held_too_long {
        eprintln!("carry: more than 1 commit in 100 took longer than {COMMIT_P99_MAX_MS} ms");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
