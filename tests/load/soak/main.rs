//! Measures what an honest client notices of an attack.
//!
//! ```text
//! soak --kalends PATH [--seconds 30] [--attack NAME]... [--messages 100000] [--serve-args "ARGUMENTS"] [--ws ADDRESS]
//! ```
//!
//! The client sends a direct push, sends a push to an agent that is offline, and connects that agent, each every
//! 100 ms. Beside it one attack after the other runs, each on a server of its own on a free port of 127.0.0.1, or on the
//! one at `--ws`. The result is a table on standard output.

mod run;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use run::{Attack, Plan, Row};

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
    #[arg(long = "attack", value_enum)]
    attacks: Vec<Attack>,
    /// Messages that wait for the attackers' agents before `carry` and `backlogs`
    #[arg(long, default_value_t = 100_000)]
    messages: usize,
    /// More arguments for `kalends serve`, separated by spaces
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    serve_args: String,
    /// A server that runs, instead of one of its own; without `carry` and `handles`
    #[arg(long, value_name = "ADDRESS")]
    ws: Option<SocketAddr>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
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
    println!("{}", Row::HEAD);
    for attack in attacks.iter().filter(|attack| plan.allows(**attack)) {
        println!("{}", run::measure(&plan, *attack).await);
    }
}
