//! All faults at once. Nodes are killed, stopped and terminated, and the store is throttled, slow,
//! wrong and down. User agents move between nodes, stall, and ack late or never, while application
//! servers keep sending.
//!
//! At the end all faults are removed, all agents reconnect and receive what is left, and `ledger`
//! checks every promise. A seed determines all random choices (`plan`): CHAOS_SEED. CHAOS_SECONDS
//! sets the duration of the storm. Every second node is the build of CHAOS_BEFORE, if that names one.

mod audit;
mod client;
mod connection;
mod ledger;
mod node_driver;
mod plan;
mod pusher;
mod reconnects;
mod report;
mod state;
mod store;
mod topics;

use std::env;
use std::mem::take;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::iter;
use tokio::sync::Mutex;
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use audit::{Audit, Auditor};
use client::Client;
use node_driver::NodeDriver;
use plan::{NodeAction, NodeActionKind, Outage, Plan, Size};
use pusher::Pusher;
use report::Report;
use state::{RunState, Stage};
use store::Store;

use crate::harness::{
    self, Agent, Cluster, Disconnected, Fault, Proxy, Rule, Sender, Server, number_from_env,
    raise_open_file_limit, timed, within,
};

/// The seed if CHAOS_SEED is not set.
const DEFAULT_SEED: u64 = 5;

/// The duration of the storm if CHAOS_SECONDS is not set.
const DEFAULT_STORM: Duration = Duration::from_secs(40);

/// Concurrent pushes of one application server.
const LANES: usize = 16;

/// Concurrency of steps whose order does not matter.
const CONCURRENCY: usize = 32;

/// The interval between two reads of the tables during the storm.
const AUDIT_EVERY: Duration = Duration::from_millis(1500);

/// The interval between two reads of the tables at the end.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Maximum time until all stored messages are delivered at the end.
const DRAIN_WAIT: Duration = Duration::from_secs(60);

/// Time after which a refused new agent tries again.
const RECONNECT_AFTER: Duration = Duration::from_millis(100);

/// Maximum duration of a run beyond its storm, on a busy machine.
const ACT_WAIT: Duration = Duration::from_secs(180);

/// Held by a storm: two at a time would exceed the timeouts of their pushes.
static TURN: Mutex<()> = Mutex::const_new(());

/// An argument of all nodes.
const FOR_ALL: [&str; 1] = ["--store-retry-ms=200"];
const FOR_CONNECTS: [&str; 2] = ["--drain-s=2", "--connects-per-second-max=150"];
const FOR_ENDPOINTS: [&str; 1] = ["--drain-lame-duck-s=1"];

#[actix_web::test]
async fn no_message_is_lost_or_redelivered_after_a_settled_ack_in_chaos() {
    storm_over(Store::DynamoDb).await;
}

/// The database is killed and stopped too.
#[actix_web::test]
async fn no_message_is_lost_or_redelivered_after_a_settled_ack_in_chaos_on_postgresql() {
    storm_over(Store::postgresql()).await;
}

async fn storm_over(store: Store) {
    let _turn = TURN.lock().await;
    let storm = number_from_env("CHAOS_SECONDS").map_or(DEFAULT_STORM, Duration::from_secs);
    let size = Size {
        clients: 500,
        connection_nodes: 3,
        endpoint_nodes: 2,
        senders: 2,
        storm,
        is_stormy: true,
    };
    let mut run = Run::begin(store, size).await;
    each_pair_delivers_directly(&run.cluster).await;
    let report = run.play().await;
    println!("{report}");
    let tally = report.messages;
    let is_a_test = tally.accepted > 100 && tally.came_later > 10 && tally.settled > 100;
    assert!(is_a_test, "too little happened: {report}");
    report.assert_no_findings();
}

/// A push with a TTL of zero is never stored: it arrives only if its endpoint node reaches the node of the agent.
async fn each_pair_delivers_directly(cluster: &Cluster) {
    for node in &cluster.connection_nodes {
        let mut agent = connect_new(node).await;
        let channel = agent.register().await;
        for at in 0..cluster.endpoint_nodes.len() {
            let (sender, body) = (Sender::new(), format!("of endpoint node {at}"));
            let push = sender.post(&cluster.endpoint(at, &channel)).ttl(0).body(body.as_str());
            let (answer, taken) = tokio::join!(push.send(), agent.take(1));
            assert_eq!((answer.status, taken[0].body()), (201, body.as_str()));
        }
    }
}

/// Shows that the ledger reports lost messages.
#[actix_web::test]
#[should_panic(expected = "is lost")]
async fn a_store_that_loses_messages_is_reported_in_chaos() {
    let mut run = Run::begin(Store::DynamoDb, SMALL).await;
    run.cluster.proxy.rule(Rule::on("PutItem", Fault::NotExecuted).table("message_"));
    run.play().await.assert_no_findings();
}

/// Shows that the ledger reports lost deletes.
#[actix_web::test]
#[should_panic(expected = "was acked and still has a row")]
async fn a_store_that_loses_deletes_is_reported_in_chaos() {
    let mut run = Run::begin(Store::DynamoDb, SMALL).await;
    run.cluster.proxy.rule(Rule::on("DeleteItem", Fault::NotExecuted).table("message_"));
    run.play().await.assert_no_findings();
}

const SMALL: Size = Size {
    clients: 20,
    connection_nodes: 1,
    endpoint_nodes: 1,
    senders: 1,
    storm: Duration::from_secs(4),
    is_stormy: false,
};

/// A run with its nodes, agents and auditor.
struct Run {
    plan: Plan,
    store: Store,
    cluster: Cluster,
    state: RunState,
    auditor: Auditor,
}

impl Run {
    /// Starts the nodes and registers the user agents.
    async fn begin(store: Store, size: Size) -> Self {
        raise_open_file_limit();
        let plan = Plan::draw(number_from_env("CHAOS_SEED").unwrap_or(DEFAULT_SEED), size);
        println!("CHAOS_SEED={} CHAOS_SECONDS={}", plan.seed, size.storm.as_secs());
        let nodes =
            harness::ClusterPlan::of(size.connection_nodes, size.endpoint_nodes).with(&FOR_ALL);
        let nodes = nodes.on(store.launch()).with(store.arguments());
        let nodes = nodes.with_clocks(plan.clocks.clone());
        let nodes = nodes.beside(env::var_os("CHAOS_BEFORE").map(PathBuf::from));
        let nodes =
            nodes.with_connection_arguments(&FOR_CONNECTS).with_endpoint_arguments(&FOR_ENDPOINTS);
        let cluster = Cluster::launch(nodes);
        let clients = timed("all agents register", register(&cluster, size.clients)).await;
        let connection_nodes = cluster.connection_nodes.iter().map(Server::address).collect();
        let endpoints = cluster.endpoint_nodes.iter().map(Server::origin).collect();
        let state = RunState::new(connection_nodes, endpoints, clients, &plan);
        let ahead_s = plan.clocks.latest_of_connection_nodes_s();
        let auditor = Auditor::of(&store, &cluster.wire.url, ahead_s);
        Self { plan, store, cluster, state, auditor }
    }

    async fn play(&mut self) -> Report {
        let Self { plan, store, cluster, state, auditor } = self;
        let sessions = plan.sessions();
        let clients = state.clients.iter().zip(sessions);
        let last = Pusher::new();
        let clients_running =
            join_all(clients.map(|(client, sessions)| client.run(state, sessions, &last)));
        let stages = Box::pin(run_stages(plan, store, cluster, state, auditor));
        within(plan.size.storm + ACT_WAIT, "the run", async {
            tokio::join!(clients_running, stages)
        })
        .await;
        state.ledger().check_versions();
        let records = auditor.records().await;
        let lost = state.clients.iter().filter(|client| !records.contains(&client.uaid)).count();
        Report::of(plan, state, store.faults(&cluster.proxy), lost)
    }
}

/// Every agent registers one or two channels and disconnects.
async fn register(cluster: &Cluster, clients: usize) -> Vec<Client> {
    let registered = iter(0..clients).map(async |number| {
        let mut agent =
            connect_new(&cluster.connection_nodes[number % cluster.connection_nodes.len()]).await;
        let mut channels = Vec::new();
        for _ in 0..1 + number % 2 {
            channels.push(agent.register().await);
        }
        Client::new(number, agent.leave().await, channels)
    });
    registered.buffered(CONCURRENCY).collect().await
}

/// Connects a new agent. On a fast machine the agents connect at a higher rate than
/// `connects_per_second_max` allows, and a refused one tries again.
async fn connect_new(node: &Server) -> Agent {
    loop {
        match Agent::try_new(node).await {
            Ok(agent) => return agent,
            Err(Disconnected) => sleep(RECONNECT_AFTER).await,
        }
    }
}

/// Runs the stages one after the other.
async fn run_stages(
    plan: &Plan,
    store: &Store,
    cluster: &mut Cluster,
    state: &RunState,
    auditor: &Auditor,
) {
    let pushing = plan.pushes(LANES).into_iter().map(|lanes| Pusher::new().push_all(state, lanes));
    let faults = async {
        inject_faults(plan, store, cluster, state).await;
        state.until(state.began + plan.size.storm).await;
        state.set_stage(Stage::Drain);
    };
    let auditing = audit(state, auditor);
    let storm = Box::pin(async { tokio::join!(join_all(pushing), faults, auditing) });
    timed("the storm", storm).await;
    timed("the endpoint nodes are restarted", end_pushes(cluster, state)).await;
    timed("all agents receive the rest", drain(state, auditor)).await;
    state.set_stage(Stage::Last);
}

/// Carries out the planned faults of nodes and store. At the end all nodes run and the store is
/// healthy.
async fn inject_faults(plan: &Plan, store: &Store, cluster: &mut Cluster, state: &RunState) {
    let (connection_nodes, endpoints) =
        (take(&mut cluster.connection_nodes), take(&mut cluster.endpoint_nodes));
    let connection_nodes = connection_nodes.into_iter().zip(plan.connection_nodes.iter().cloned());
    let endpoints = endpoints.into_iter().zip(plan.endpoint_nodes.iter().cloned());
    let faults = async {
        tokio::join!(
            drive_nodes(connection_nodes, true, state),
            drive_nodes(endpoints, false, state)
        )
    };
    let (nodes, ()) =
        tokio::join!(faults, inject_outages(store, &cluster.proxy, &plan.outages, state));
    (cluster.connection_nodes, cluster.endpoint_nodes) = nodes;
}

/// Carries out the planned actions of nodes, each in its own thread, and returns the nodes.
async fn drive_nodes(
    nodes: impl Iterator<Item = (Server, Vec<NodeAction>)>,
    are_connects: bool,
    state: &RunState,
) -> Vec<Server> {
    let (events, mut received) = unbounded_channel();
    let mut runs = Vec::new();
    let minders: Vec<_> = nodes
        .enumerate()
        .map(|(number, (server, actions))| {
            let (end_of_run, run) = mpsc::channel();
            runs.push(end_of_run);
            let (connect, began, events) =
                (are_connects.then_some(number), state.began, events.clone());
            let node_driver = NodeDriver { server, connect, actions, began, events, run };
            spawn_blocking(move || node_driver.run())
        })
        .collect();
    drop(events);
    let recording = async {
        while let Some(events) = received.recv().await {
            state.on_node_event(events);
        }
    };
    let (servers, ()) = tokio::join!(join_all(minders), recording);
    servers.into_iter().map(|server| server.expect("a node can be minded")).collect()
}

/// Injects the planned faults of the store.
async fn inject_outages(store: &Store, proxy: &Proxy, outages: &[Outage], state: &RunState) {
    for outage in outages {
        state.until(state.began + outage.at).await;
        store.fail(outage, proxy, state.until(state.began + outage.at + outage.lasts)).await;
    }
}

/// Reads the tables periodically during the storm.
async fn audit(state: &RunState, auditor: &Auditor) {
    while state.stage() == Stage::Storm {
        let audit = auditor.audit().await;
        state.ledger().audited(audit.begun_at, Instant::now(), &audit.rows);
        state.pause(AUDIT_EVERY).await;
    }
}

/// Restarts the endpoint nodes, which ends every push in progress.
async fn end_pushes(cluster: &mut Cluster, state: &RunState) {
    let end =
        NodeAction { at: Duration::ZERO, kind: NodeActionKind::Terminate, lasts: Duration::ZERO };
    let endpoints = take(&mut cluster.endpoint_nodes).into_iter().map(|server| (server, vec![end]));
    cluster.endpoint_nodes = drive_nodes(endpoints, false, state).await;
    state.ledger().pushes_are_over(Instant::now());
}

/// Waits until all agents are connected and no message is left for them.
async fn drain(state: &RunState, auditor: &Auditor) {
    state.all_draining().await;
    let until = Instant::now() + DRAIN_WAIT;
    loop {
        let Audit { begun_at, rows, alive } = auditor.audit().await;
        state.ledger().audited(begun_at, Instant::now(), &rows);
        let is_stuck = state.ledger().look_for_stuck(begun_at, &alive);
        if alive.is_empty() || is_stuck || Instant::now() > until {
            return state.ledger().drained(begun_at);
        }
        sleep(POLL_INTERVAL).await;
    }
}
