//! Everything at once: nodes that are killed, stopped and ended, a store that is throttled, slow, wrong and away, user
//! agents that move, stall and ack late or never, and application servers that go on sending.
//!
//! In the end all is healed, everybody comes back and takes what is left, and `ledger` says whether every promise was
//! kept. All that is chosen by chance is chosen by a seed (`plan`): CHAOS_SEED. CHAOS_SECONDS makes it last longer.

mod audit;
mod client;
mod comebacks;
mod ledger;
mod minder;
mod plan;
mod pusher;
mod report;
mod scene;
mod topics;
mod visit;

use std::mem::take;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::iter;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use audit::{Audit, Auditor};
use client::Client;
use minder::Minder;
use plan::{Deed, DeedKind, Plan, Size, Spell};
use pusher::Pusher;
use report::Report;
use scene::{Scene, Stage};

use crate::harness::{self, Agent, Cluster, Fault, Proxy, Rule, Server, within};

/// What chance begins with where nobody says otherwise.
const DEFAULT_SEED: u64 = 5;

/// How long the storm lasts where nobody says otherwise.
const DEFAULT_STORM: Duration = Duration::from_secs(40);

/// Pushes that one application server has under way at once.
const LANES: usize = 16;

/// How many things happen at once where the order is of no matter.
const AT_A_TIME: usize = 32;

/// How often the tables are looked into.
const AUDIT_EVERY: Duration = Duration::from_millis(1500);

/// How often they are looked into in the end.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How long it takes at most until all that is left was taken.
const DRAIN_WAIT: Duration = Duration::from_secs(60);

/// The longest that a run may take beside its storm, on a machine that has other things to do too.
const ACT_WAIT: Duration = Duration::from_secs(180);

/// What nodes are started with. What is waited for is short, but for requests to the store: one that is given up and
/// carried out all the same, after its message's ack was settled, brings the message again, which no client of DynamoDB
/// can prevent (docs/storage.md).
const FOR_ALL: [&str; 5] = [
    "--store-retry-ms=200",
    "--dynamodb-backoff-ms=10",
    "--dynamodb-attempts-max=4",
    "--dynamodb-attempt-timeout-ms=20000",
    "--dynamodb-operation-timeout-ms=30000",
];
const FOR_CONNECTS: [&str; 2] = ["--drain-s=2", "--connects-per-second-max=150"];
const FOR_ENDPOINTS: [&str; 1] = ["--drain-lame-duck-s=1"];

#[actix_web::test]
async fn nothing_is_lost_in_chaos_and_nothing_comes_again_after_its_ack_was_settled() {
    let storm = from_env("CHAOS_SECONDS").map_or(DEFAULT_STORM, Duration::from_secs);
    let size = Size { clients: 500, connects: 3, endpoints: 2, senders: 2, storm, is_stormy: true };
    let mut run = Run::begin(size).await;
    let report = run.play().await;
    println!("{report}");
    let tally = report.messages;
    let is_a_test = tally.accepted > 100 && tally.came_later > 10 && tally.settled > 100;
    assert!(is_a_test, "too little happened: {report}");
    report.must_be_clean();
}

/// That this test would notice.
#[actix_web::test]
#[should_panic(expected = "is lost")]
async fn a_store_that_forgets_messages_is_found_out_in_chaos() {
    let mut run = Run::begin(A_FEW).await;
    run.cluster.proxy.rule(Rule::on("PutItem", Fault::Forgotten).table("message_"));
    run.play().await.must_be_clean();
}

/// That this test would notice.
#[actix_web::test]
#[should_panic(expected = "was acked and is still there")]
async fn a_store_that_forgets_deletes_is_found_out_in_chaos() {
    let mut run = Run::begin(A_FEW).await;
    run.cluster.proxy.rule(Rule::on("DeleteItem", Fault::Forgotten).table("message_"));
    run.play().await.must_be_clean();
}

const A_FEW: Size = Size {
    clients: 20,
    connects: 1,
    endpoints: 1,
    senders: 1,
    storm: Duration::from_secs(4),
    is_stormy: false,
};

/// A run, and all who take part.
struct Run {
    plan: Plan,
    cluster: Cluster,
    scene: Scene,
    auditor: Auditor,
}

impl Run {
    /// Starts the nodes and registers everybody.
    async fn begin(size: Size) -> Self {
        allow_connections();
        let plan = Plan::draw(from_env("CHAOS_SEED").unwrap_or(DEFAULT_SEED), size);
        println!("CHAOS_SEED={} CHAOS_SECONDS={}", plan.seed, size.storm.as_secs());
        let nodes = harness::Plan::of(size.connects, size.endpoints).with(&FOR_ALL);
        let nodes = nodes.connects_with(&FOR_CONNECTS).endpoints_with(&FOR_ENDPOINTS);
        let cluster = Cluster::launch(nodes);
        let clients = act("everybody registers", register(&cluster, size.clients)).await;
        let connects = cluster.connects.iter().map(Server::address).collect();
        let endpoints = cluster.endpoints.iter().map(Server::origin).collect();
        let scene = Scene::new(connects, endpoints, clients, plan.spells.clone());
        let auditor = Auditor::of(&cluster.wire.url);
        Self { plan, cluster, scene, auditor }
    }

    async fn play(&mut self) -> Report {
        let Self { plan, cluster, scene, auditor } = self;
        let stays = plan.stays();
        let clients = scene.clients.iter().zip(stays);
        let last = Pusher::new();
        let living = join_all(clients.map(|(client, stays)| client.live(scene, stays, &last)));
        let directing = Box::pin(direct(plan, cluster, scene, auditor));
        within(plan.size.storm + ACT_WAIT, "the run", async { tokio::join!(living, directing) })
            .await;
        scene.ledger().check_versions();
        let records = auditor.records().await;
        let lost = scene.clients.iter().filter(|client| !records.contains(&client.uaid)).count();
        Report::of(plan, scene, cluster, lost)
    }
}

/// Everybody registers a channel or two and leaves.
async fn register(cluster: &Cluster, clients: usize) -> Vec<Client> {
    let registered = iter(0..clients).map(async |number| {
        let mut agent = Agent::new(&cluster.connects[number % cluster.connects.len()]).await;
        let mut channels = Vec::new();
        for _ in 0..1 + number % 2 {
            channels.push(agent.register().await);
        }
        Client::new(number, agent.leave().await, channels)
    });
    registered.buffered(AT_A_TIME).collect().await
}

/// One stage after the other.
async fn direct(plan: &Plan, cluster: &mut Cluster, scene: &Scene, auditor: &Auditor) {
    let pushing = plan.pushes(LANES).into_iter().map(|lanes| Pusher::new().push_all(scene, lanes));
    let suffering = async {
        nodes_suffer(plan, cluster, scene).await;
        scene.until(scene.began + plan.size.storm).await;
        scene.enters(Stage::Drain);
    };
    let looking = audit(scene, auditor);
    let storm = Box::pin(async { tokio::join!(join_all(pushing), suffering, looking) });
    act("the storm", storm).await;
    act("endpoint nodes are ended", end_pushes(cluster, scene)).await;
    act("everybody takes the rest", drain(scene, auditor)).await;
    scene.enters(Stage::Last);
}

/// All that is planned for nodes and their store. When this ends, all nodes run and the store is well.
async fn nodes_suffer(plan: &Plan, cluster: &mut Cluster, scene: &Scene) {
    let (connects, endpoints) = (take(&mut cluster.connects), take(&mut cluster.endpoints));
    let connects = connects.into_iter().zip(plan.connects.iter().cloned());
    let endpoints = endpoints.into_iter().zip(plan.endpoints.iter().cloned());
    let suffering =
        async { tokio::join!(mind(connects, true, scene), mind(endpoints, false, scene)) };
    let (suffered, ()) = tokio::join!(suffering, weather(&cluster.proxy, &plan.spells, scene));
    (cluster.connects, cluster.endpoints) = suffered;
}

/// Does what is planned for nodes, each in a thread of its own, and gives them back.
async fn mind(
    nodes: impl Iterator<Item = (Server, Vec<Deed>)>,
    are_connects: bool,
    scene: &Scene,
) -> Vec<Server> {
    let (news, mut heard) = unbounded_channel();
    let mut runs = Vec::new();
    let minders: Vec<_> = nodes
        .enumerate()
        .map(|(number, (server, deeds))| {
            let (goes_on, run) = mpsc::channel();
            runs.push(goes_on);
            let (connect, began, news) =
                (are_connects.then_some(number), scene.began, news.clone());
            let minder = Minder { server, connect, deeds, began, news, run };
            spawn_blocking(move || minder.mind())
        })
        .collect();
    drop(news);
    let listening = async {
        while let Some(news) = heard.recv().await {
            scene.hears(news);
        }
    };
    let (servers, ()) = tokio::join!(join_all(minders), listening);
    servers.into_iter().map(|server| server.expect("a node can be minded")).collect()
}

/// What becomes of the store.
async fn weather(proxy: &Proxy, spells: &[Spell], scene: &Scene) {
    for spell in spells {
        scene.until(scene.began + spell.at).await;
        proxy.rule(spell.rule.clone());
        scene.until(scene.began + spell.at + spell.lasts).await;
        proxy.heal();
    }
}

/// Looks into the tables again and again while the storm lasts.
async fn audit(scene: &Scene, auditor: &Auditor) {
    while scene.stage() == Stage::Storm {
        let audit = auditor.audit().await;
        scene.ledger().audited(audit.begun_at, Instant::now(), &audit.rows);
        scene.pause(AUDIT_EVERY).await;
    }
}

/// Ends the endpoint nodes, and with them every push that is still under way, and starts them again.
async fn end_pushes(cluster: &mut Cluster, scene: &Scene) {
    let end = Deed { at: Duration::ZERO, kind: DeedKind::Terminate, lasts: Duration::ZERO };
    let endpoints = take(&mut cluster.endpoints).into_iter().map(|server| (server, vec![end]));
    cluster.endpoints = mind(endpoints, false, scene).await;
    scene.ledger().pushes_are_over(Instant::now());
}

/// Waits until all are there and nothing is left for them.
async fn drain(scene: &Scene, auditor: &Auditor) {
    scene.all_draining().await;
    let until = Instant::now() + DRAIN_WAIT;
    loop {
        let Audit { begun_at, rows, alive } = auditor.audit().await;
        scene.ledger().audited(begun_at, Instant::now(), &rows);
        let is_stuck = scene.ledger().look_for_stuck(begun_at, &alive);
        if alive.is_empty() || is_stuck || Instant::now() > until {
            return scene.ledger().drained(begun_at);
        }
        sleep(LOOK_EVERY).await;
    }
}

/// A connection is an open file, here and in the nodes, which inherit this; many systems allow 1024 unless
/// they are asked for more.
fn allow_connections() {
    let allowed = getrlimit(Resource::Nofile);
    let all = Rlimit { current: allowed.maximum, maximum: allowed.maximum };
    setrlimit(Resource::Nofile, all).expect("a process may have what it is allowed");
}

fn from_env(name: &str) -> Option<u64> {
    let given = std::env::var(name).ok()?;
    Some(given.parse().unwrap_or_else(|_| panic!("{name} is a number, not {given}")))
}

async fn act<F: Future>(what: &str, act: F) -> F::Output {
    let began = Instant::now();
    let output = act.await;
    println!("{what}: {:.1} s", began.elapsed().as_secs_f32());
    output
}
