//! Measures pushes after kill -9 of a connection node that router records still name.

use std::slice;

use clap::{Args, value_parser};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::cluster::{LoadCluster, Node, Programs};
use super::shared::agent::Agent;
use super::shared::sender::Sender;
use super::{percentile, rounded};

/// Pushes to agents of a dead node, and for comparison to offline agents.
#[derive(Debug, Args)]
pub(crate) struct Dead {
    #[command(flatten)]
    programs: Programs,
    /// User agents of each dead node, and as many that are offline. Each gets one push
    #[arg(long, default_value_t = 200, value_parser = value_parser!(u32).range(3..))]
    pushes: u32,
    /// Nodes that are killed, one after the other
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Stops the nodes with SIGSTOP instead of killing them: the kernel still accepts connections,
    /// without an answer
    #[arg(long)]
    frozen: bool,
}

/// Pushes to connected and to offline agents before each kill, which open all connections.
const WARM_UP: usize = 50;

/// The durations of one round, in ms.
struct Round {
    first: f64,
    second: f64,
    others: Vec<f64>,
    away: Vec<f64>,
}

impl Dead {
    /// Kills nodes and returns the durations of pushes.
    pub(crate) async fn measure(self) -> Value {
        let mut cluster = LoadCluster::set(self.programs.clone()).await;
        let endpoint = cluster.endpoint_node().await;
        let (sender, mut rounds) = (Sender::new(), Vec::with_capacity(self.rounds));
        for number in 1..=self.rounds {
            eprintln!("round {number} of {}", self.rounds);
            let node = cluster.connection_node(&endpoint, &[]).await;
            rounds.push(self.round(&cluster, node, &sender).await);
        }
        self.report(&rounds)
    }

    /// Kills this node, or stops it with SIGSTOP.
    async fn round(&self, cluster: &LoadCluster, mut node: Node, sender: &Sender) -> Round {
        let agents = WARM_UP + self.pushes as usize;
        let away = absent(&node, sender, agents).await;
        cluster.until_records_name(&node, 0).await;
        let (here, _ackers) = present(&node, agents).await;
        for (here, away) in here.iter().zip(&away).take(WARM_UP) {
            timed_push(sender, here).await;
            timed_push(sender, away).await;
        }
        match self.frozen {
            // The node exists, and does nothing.
            true => node.process.signal(Signal::STOP),
            false => node.process.child.kill().await.expect("the node runs"),
        }
        let round = Round::of(&here[WARM_UP..], &away[WARM_UP..], sender).await;
        // Records of unreachable agents are not changed.
        cluster.until_records_name(&node, agents).await;
        round
    }

    fn report(&self, rounds: &[Round]) -> Value {
        let of = |part: fn(&Round) -> &[f64]| sorted(rounds.iter().flat_map(part).copied());
        let first = of(|round| slice::from_ref(&round.first));
        let second = of(|round| slice::from_ref(&round.second));
        let (others, away) = (of(|round| &round.others), of(|round| &round.away));
        let extra = |ms: &[f64]| rounded(percentile(ms, 50) - percentile(&away, 50));
        json!({
            "measure": "dead", "frozen": self.frozen, "pushes": self.pushes, "rounds": self.rounds,
            "away_ms": spread(&away), "first_ms": first, "second_ms": second,
            "others_ms": spread(&others),
            "extra_ms": {
                "first": extra(&first), "second": extra(&second), "others": extra(&others),
            },
        })
    }
}

impl Round {
    /// One push to each agent, alternating between both groups.
    async fn of(dead: &[String], away: &[String], sender: &Sender) -> Self {
        let (mut to_dead, mut to_away) = (Vec::new(), Vec::new());
        for (dead, away) in dead.iter().zip(away) {
            to_dead.push(timed_push(sender, dead).await);
            to_away.push(timed_push(sender, away).await);
        }
        let others = to_dead.split_off(2);
        Self { first: to_dead[0], second: to_dead[1], others, away: to_away }
    }
}

/// Endpoints of agents that registered and disconnected. A first push clears the node in their
/// records.
async fn absent(node: &Node, sender: &Sender, count: usize) -> Vec<String> {
    let mut endpoints = Vec::with_capacity(count);
    for _ in 0..count {
        let (_, endpoint) = Agent::offline(node.process.address).await;
        timed_push(sender, &endpoint).await;
        endpoints.push(endpoint);
    }
    endpoints
}

/// Endpoints of connected agents, and the tasks that ack for them until the node ends.
async fn present(node: &Node, count: usize) -> (Vec<String>, JoinSet<()>) {
    let (mut endpoints, mut ackers) = (Vec::with_capacity(count), JoinSet::new());
    for _ in 0..count {
        let mut agent = Agent::new(node.process.address).await;
        endpoints.push(agent.register().await);
        ackers.spawn(agent.ack_all());
    }
    (endpoints, ackers)
}

/// The time until a push is accepted, in ms.
async fn timed_push(sender: &Sender, endpoint: &str) -> f64 {
    let began = Instant::now();
    assert_eq!(sender.push(endpoint, 0).await, Some(201), "a push is taken");
    began.elapsed().as_secs_f64() * 1000.0
}

fn sorted(ms: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut ms: Vec<_> = ms.map(rounded).collect();
    ms.sort_by(f64::total_cmp);
    ms
}

fn spread(ms: &[f64]) -> Value {
    json!({"p50": percentile(ms, 50), "p90": percentile(ms, 90), "max": percentile(ms, 100)})
}
