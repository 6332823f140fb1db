//! Measures the end of a connection node: the duration of a drain, and the cost of a dead node.
//!
//! ```text
//! cluster_load drain --kalends PATH --dynamodb PATH [--clients 5000] [--drain-s 10] [--rate 500]
//! cluster_load dead  --kalends PATH --dynamodb PATH [--pushes 200] [--rounds 5] [--frozen]
//! ```
//!
//! It starts all processes on free ports of 127.0.0.1, and ends them. The result is one line of JSON on standard
//! output; progress is on standard error. It runs in one thread.

#![expect(
    clippy::disallowed_methods,
    reason = "a measurement writes files that no power loss meets"
)]

mod cluster;
mod dead;
mod drain;
mod ledger;
#[expect(dead_code, reason = "each tool uses a part")]
#[path = "../shared/mod.rs"]
mod shared;
mod user;

use clap::{Parser, Subcommand};

/// Measures the drain and the death of a connection node, and prints one line of JSON
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    measure: Measure,
}

#[derive(Debug, Subcommand)]
enum Measure {
    /// SIGTERM to a connection node, during pushes, while its user agents move to another node
    Drain(drain::Drain),
    /// kill -9 to a connection node, followed by pushes to its user agents
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

/// The percentile of sorted numbers, rounded to three decimal places.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    rounded(shared::percentile::percentile(sorted, percent))
}

/// Rounds to three decimal places.
fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}
