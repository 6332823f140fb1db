//! Measures SIGTERM to a connection node with thousands of user agents.

use std::sync::Arc;
use std::time::Duration;

use clap::{Args, value_parser};
use futures_util::{StreamExt, stream};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::cluster::{LoadCluster, Node, Programs};
use super::ledger::SharedLedger;
use super::rounded;
use super::shared::agent::Agent;
use super::shared::sender::Sender;
use super::user::User;

/// Parameters of the measurement.
#[derive(Debug, Args)]
pub(crate) struct Drain {
    #[command(flatten)]
    programs: Programs,
    /// User agents of the node that is stopped
    #[arg(long, default_value_t = 5000)]
    clients: usize,
    /// The setting `drain_s`, in seconds
    #[arg(long, default_value_t = 10)]
    drain_s: u64,
    /// Pushes a second, each to a random user agent
    #[arg(long, default_value_t = 500, value_parser = value_parser!(u32).range(1..))]
    rate: u32,
}

/// Concurrent connects before the measurement.
const CONNECTING_AT_ONCE: usize = 32;

/// The duration of pushes before SIGTERM.
const BEFORE: Duration = Duration::from_secs(5);

/// The duration of pushes after all agents have reconnected.
const AFTER: Duration = Duration::from_secs(5);

/// How much longer than `drain_s` the node, and then the agents, may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Without an arrival for this long, the remaining messages are considered missing.
const SILENCE: Duration = Duration::from_secs(10);

/// The observed times of the node's end.
struct Ending {
    /// The start of the pushes.
    steady: Instant,
    /// The time of SIGTERM.
    signalled_at: Instant,
    ended: Instant,
    code: Option<i32>,
}

impl Drain {
    /// Drains a node and returns the figures.
    pub(crate) async fn measure(self) -> Value {
        let Self { programs, clients, drain_s, rate } = self;
        let mut cluster = LoadCluster::set(programs).await;
        let endpoint = cluster.endpoint_node().await;
        let drain = format!("--drain-s={drain_s}");
        let mut draining = cluster.connection_node(&endpoint, &[drain]).await;
        let other = cluster.connection_node(&endpoint, &[]).await;
        let crowd = AgentPool::gather(&draining, &other, clients).await;

        let pushes = crowd.start_pushes(rate);
        let ending = crowd.end(&mut draining, Duration::from_secs(drain_s) + PATIENCE).await;
        sleep(AFTER).await;
        pushes.stop().await;
        crowd.until_quiet().await;
        let found_on_return = crowd.find_the_rest().await;
        let still_named = cluster.records_that_name(&draining).await;
        json!({
            "measure": "drain", "clients": clients, "drain_s": drain_s, "rate": rate,
            "node": ending.report(), "agents": crowd.agents_report(ending.signalled_at),
            "pushes": crowd.pushes_report(&ending), "found_on_return_only": found_on_return,
            "records_that_name_it": still_named,
        })
    }
}

/// The user agents and their tasks.
struct AgentPool {
    ledger: SharedLedger,
    endpoints: Arc<[String]>,
    reconnect_signal: watch::Sender<()>,
    /// All tasks are aborted when this is dropped.
    _users: JoinSet<()>,
}

impl AgentPool {
    async fn gather(node: &Node, other: &Node, count: usize) -> Self {
        eprintln!("{count} user agents connect and subscribe");
        let enter = async |_| {
            let mut agent = Agent::new(node.process.address).await;
            let endpoint = agent.register().await;
            (agent, endpoint)
        };
        let agents = stream::iter(0..count).map(enter).buffer_unordered(CONNECTING_AT_ONCE);
        let agents: Vec<_> = agents.collect().await;
        let (ledger, (reconnect_signal, _)) = (SharedLedger::default(), watch::channel(()));
        let (mut users, mut endpoints) = (JoinSet::new(), Vec::with_capacity(count));
        for (agent, endpoint) in agents {
            endpoints.push(endpoint);
            let (ledger, reconnect_signal) = (ledger.clone(), reconnect_signal.subscribe());
            users.spawn(
                User { agent, elsewhere: other.process.address, ledger, reconnect_signal }.live(),
            );
        }
        Self { ledger, endpoints: endpoints.into(), reconnect_signal, _users: users }
    }

    fn start_pushes(&self, rate: u32) -> Pushes {
        eprintln!("{rate} pushes a second begin");
        let (stop, stopped) = watch::channel(false);
        let (ledger, endpoints) = (self.ledger.clone(), self.endpoints.clone());
        let mut task = JoinSet::new();
        task.spawn(push_on(ledger, endpoints, Duration::from_secs(1) / rate, stopped));
        Pushes { stop, task }
    }

    /// Sends SIGTERM after some time, and waits until the node has ended and all agents have
    /// reconnected.
    async fn end(&self, node: &mut Node, bound: Duration) -> Ending {
        let steady = Instant::now();
        sleep(BEFORE).await;
        eprintln!("SIGTERM");
        let signalled_at = Instant::now();
        node.process.signal(Signal::TERM);
        let code = node.process.ended_within(bound).await;
        let ended = Instant::now();
        eprintln!("it ended with {code:?}");
        self.until_back().await;
        Ending { steady, signalled_at, ended, code }
    }

    /// Waits until all agents have reconnected.
    async fn until_back(&self) {
        let back = async {
            while self.ledger.open().count_back() < self.endpoints.len() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        if timeout(PATIENCE, back).await.is_err() {
            eprintln!("not all user agents are back");
        }
    }

    /// Waits until all messages have arrived, or none arrives any more.
    async fn until_quiet(&self) {
        let (mut seen, mut since) = (self.ledger.open().arrivals(), Instant::now());
        while self.ledger.open().missing() > 0 && since.elapsed() < SILENCE {
            sleep(Duration::from_millis(100)).await;
            let arrivals = self.ledger.open().arrivals();
            if arrivals > seen {
                (seen, since) = (arrivals, Instant::now());
            }
        }
    }

    /// Reconnects all agents if a message is missing, and returns the number of messages found by
    /// that.
    async fn find_the_rest(&self) -> usize {
        let missing = self.ledger.open().missing();
        if missing > 0 {
            eprintln!("{missing} did not arrive: all user agents connect anew");
            self.reconnect_signal.send_replace(());
            self.until_quiet().await;
        }
        missing - self.ledger.open().missing()
    }

    fn agents_report(&self, signalled_at: Instant) -> Value {
        let ledger = self.ledger.open();
        json!({"closed": ledger.closes(signalled_at), "back": ledger.returns(signalled_at)})
    }

    fn pushes_report(&self, ending: &Ending) -> Value {
        let ledger = self.ledger.open();
        json!({
            "answers": ledger.answers(), "lost": ledger.missing(), "came_again": ledger.repeats(),
            "ms_before": ledger.latencies(ending.steady, ending.signalled_at),
            "ms_meanwhile": ledger.latencies(ending.signalled_at, ending.ended),
        })
    }
}

impl Ending {
    fn report(&self) -> Value {
        let after = |then: Instant| rounded((then - self.signalled_at).as_secs_f64());
        json!({"ended_after_s": after(self.ended), "exit_code": self.code})
    }
}

/// A running sequence of pushes.
struct Pushes {
    stop: watch::Sender<bool>,
    task: JoinSet<()>,
}

impl Pushes {
    /// Starts no further push, and waits for the answers.
    async fn stop(self) {
        self.stop.send_replace(true);
        self.task.join_all().await;
    }
}

/// Starts a push at each interval, even if earlier ones are not answered.
async fn push_on(
    ledger: SharedLedger,
    endpoints: Arc<[String]>,
    pause: Duration,
    stopped: watch::Receiver<bool>,
) {
    let (sender, mut waiting, mut next) = (Sender::new(), JoinSet::new(), Instant::now());
    while !*stopped.borrow() {
        let endpoint = endpoints[fastrand::usize(0..endpoints.len())].clone();
        let (sender, ledger) = (sender.clone(), ledger.clone());
        waiting.spawn(async move {
            let number = ledger.open().push();
            let status = sender.push(&endpoint, number).await;
            ledger.open().answered(number, status);
        });
        while waiting.try_join_next().is_some() {}
        next += pause;
        sleep_until(next).await;
    }
    waiting.join_all().await;
}
