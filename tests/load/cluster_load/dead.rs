//! kill -9 to a connection node that router records go on naming.

use std::slice;

use clap::{Args, value_parser};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::agent::Agent;
use super::scene::{Node, Programs, Scene};
use super::sender::Sender;
use super::{percentile, rounded};

/// Pushes to a dead node, and beside them pushes to user agents that are away.
#[derive(Debug, Args)]
pub(crate) struct Dead {
    #[command(flatten)]
    programs: Programs,
    /// User agents of each dead node, and as many that are away. Each gets one push
    #[arg(long, default_value_t = 200, value_parser = value_parser!(u32).range(3..))]
    pushes: u32,
    /// Nodes that are killed, one after the other
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Stops the nodes (SIGSTOP) instead of killing them: the system still takes connections, and nobody answers
    #[arg(long)]
    frozen: bool,
}

/// Pushes before each kill, to connected agents and to those that are away: what is open later is open then.
const WARM_UP: usize = 50;

/// What one round took, in ms.
struct Round {
    first: f64,
    second: f64,
    others: Vec<f64>,
    away: Vec<f64>,
}

impl Dead {
    /// Kills nodes, and says what pushes took then.
    pub(crate) async fn measure(self) -> Value {
        let mut scene = Scene::set(self.programs.clone()).await;
        let endpoint = scene.endpoint_node().await;
        let (sender, mut rounds) = (Sender::new(), Vec::with_capacity(self.rounds));
        for number in 1..=self.rounds {
            eprintln!("round {number} of {}", self.rounds);
            let node = scene.connection_node(&endpoint, &[]).await;
            rounds.push(self.round(&scene, node, &sender).await);
        }
        self.report(&rounds)
    }

    /// Kills this node, or freezes it.
    async fn round(&self, scene: &Scene, mut node: Node, sender: &Sender) -> Round {
        let agents = WARM_UP + self.pushes as usize;
        let away = absent(&node, sender, agents).await;
        scene.until_records_name(&node, 0).await;
        let (here, _ackers) = present(&node, agents).await;
        for (here, away) in here.iter().zip(&away).take(WARM_UP) {
            timed_push(sender, here).await;
            timed_push(sender, away).await;
        }
        match self.frozen {
            true => node.freeze(),
            false => node.kill().await,
        }
        let round = Round::of(&here[WARM_UP..], &away[WARM_UP..], sender).await;
        // Who is unreachable stays in the records.
        scene.until_records_name(&node, agents).await;
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
    /// One push to each, in turn.
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

/// Endpoints of user agents that subscribed and left, and whose records name no node: the first push sees to that.
async fn absent(node: &Node, sender: &Sender, count: usize) -> Vec<String> {
    let mut endpoints = Vec::with_capacity(count);
    for _ in 0..count {
        let mut agent = Agent::new(node.address).await;
        let endpoint = agent.register().await;
        agent.leave().await;
        timed_push(sender, &endpoint).await;
        endpoints.push(endpoint);
    }
    endpoints
}

/// Endpoints of user agents that are connected, and tasks that ack for them until the node is gone.
async fn present(node: &Node, count: usize) -> (Vec<String>, JoinSet<()>) {
    let (mut endpoints, mut ackers) = (Vec::with_capacity(count), JoinSet::new());
    for _ in 0..count {
        let mut agent = Agent::new(node.address).await;
        endpoints.push(agent.register().await);
        ackers.spawn(async move {
            while let Ok(notification) = agent.hear().await {
                agent.ack(&notification).await;
            }
        });
    }
    (endpoints, ackers)
}

/// How long it took until a push was taken, in ms.
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
