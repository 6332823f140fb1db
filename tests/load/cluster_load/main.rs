//! What happens when a connection node goes: how it drains, and what a dead one costs.
//!
//! ```text
//! cluster_load drain --kalends PATH --dynamodb PATH [--clients 5000] [--drain-s 10] [--rate 500]
//! cluster_load dead  --kalends PATH --dynamodb PATH [--pushes 200] [--rounds 5] [--frozen]
//! ```
//!
//! Starts all processes by itself, on free ports of 127.0.0.1, and ends them. The result is one line of JSON; what is
//! being done meanwhile goes to standard error. One thread.

mod agent;
mod dead;
mod drain;
mod ledger;
mod scene;
mod sender;
mod user;

use clap::{Parser, Subcommand};

/// Measures what happens when a connection node goes, and prints one line of JSON
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    measure: Measure,
}

#[derive(Debug, Subcommand)]
enum Measure {
    /// SIGTERM to a connection node, while pushes go on and its user agents move to another
    Drain(drain::Drain),
    /// kill -9 to a connection node, and then pushes for its user agents, one after the other
    Dead(dead::Dead),
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let result = match Args::parse().measure {
        Measure::Drain(drain) => drain.measure().await,
        Measure::Dead(dead) => dead.measure().await,
    };
    println!("{result}");
}

/// The value below which so many of a hundred are. 0 where there is none.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    rounded(sorted.get(at).copied().unwrap_or_default())
}

/// Three digits behind the point.
fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}
