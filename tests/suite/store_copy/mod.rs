//! `kalends store copy`: from SQLite to DynamoDB and back, with agents and senders.

mod receipts;

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use state_machine::Time;
use storage::Store as _;
use storage::maintenance::StoreAdmin as _;
use storage_sqlite::Embedded;
use storage_sqlite::EmbeddedOptions;
use tempfile::TempDir;

use crate::bridges::phones;
use crate::harness::{
    Agent, Channel, ExitOutput, Fault, Launch, Program, Proxy, PushService, Role, Rule, Sender,
    Server, WireServer, dynamo, shared_keys, within,
};
use crate::simplepush::{self, SimpleAgent};

/// Longer than messages must live to be compared.
const TTL_S: u32 = 2 * 24 * 60 * 60;

/// More than two batches of a copy.
const PUSHES: usize = 60;

/// A copy that has not begun after this long never will.
const BEGINS_WITHIN: std::time::Duration = std::time::Duration::from_secs(60);

fn copy(to: &str, data_dir: &Path, url: &str, more: &[&str]) -> tokio::process::Command {
    let mut command = dynamo::launch(url).command(&["store", "copy", "--to", to]);
    command.args(more).arg("--data-dir").arg(data_dir);
    command
}

async fn run(to: &str, data_dir: &Path, url: &str, more: &[&str]) -> ExitOutput {
    Program::run(copy(to, data_dir, url, more)).await
}

async fn copied(to: &str, data_dir: &Path, url: &str) -> String {
    let printed = run(to, data_dir, url, &["--server-stopped"]).await.succeeded();
    assert!(printed.ends_with("both stores have the same rows\n"), "{printed}");
    printed
}

async fn assert_refused(to: &str, data_dir: &Path, url: &str, why: &str) {
    let ended = run(to, data_dir, url, &["--server-stopped"]).await;
    ended.failed(1, why);
    assert_eq!(ended.stdout, "", "{ended:?}");
}

/// The rows and the digest of each table, of two stores that are equal.
async fn digests(to: &str, data_dir: &Path, url: &str) -> Value {
    let ended = run(to, data_dir, url, &["--server-stopped", "--verify-only", "--json"]).await;
    serde_json::from_str(&ended.succeeded()).expect("it prints JSON")
}

/// The value of the one key of the feed `prices`.
async fn price(launch: Launch, data_dir: &Path) -> String {
    let mut tail = launch.command(&["feed", "tail", "prices", "--once"]);
    tail.arg("--data-dir").arg(data_dir);
    Program::run(tail).await.stdout
}

async fn push(endpoint: &str, body: &str) {
    let pushed = Sender::new().post(endpoint).ttl(TTL_S).body(body).send().await;
    assert_eq!(pushed.status, 201, "{pushed}");
}

pub(crate) async fn id_floor(data_dir: &Path) -> Time {
    let store = Embedded::open(data_dir, &EmbeddedOptions::new(8)).expect("no server uses it");
    let floor = store.id_floor().await.expect("the store works");
    store.close().await.expect("the store closes");
    floor
}

/// Removes the SQLite files, and leaves keys.toml.
fn remove_store(data_dir: &Path) {
    for entry in fs::read_dir(data_dir).expect("the server has it") {
        let path = entry.expect("it can be listed").path();
        if !path.ends_with("keys.toml") {
            fs::remove_file(path).expect("it is a file");
        }
    }
}

/// A stopped server with an agent for which pushes wait.
async fn with_pushes(keys: &str) -> (Server, String, Channel) {
    let launch = Launch { keys: Some(keys.to_owned()), ..Launch::default() };
    let mut server = Server::launch(launch);
    let (uaid, channel) = Agent::offline(&server).await;
    for number in 0..PUSHES {
        push(&channel.endpoint, &number.to_string()).await;
    }
    assert!(server.terminate().success());
    (server, uaid, channel)
}

async fn assert_each_once(server: &Server, uaid: &str) {
    let mut agent = Agent::reconnect(server, uaid).await;
    let delivered = agent.take(PUSHES).await;
    agent.ack_all(&delivered).await;
    let mut bodies: Vec<usize> =
        delivered.iter().map(|it| it.body().parse().expect("a number was pushed")).collect();
    bodies.sort_unstable();
    assert_eq!(bodies, (0..PUSHES).collect::<Vec<_>>());
    assert_eq!(agent.pending_notifications().await, []);
}

#[actix_web::test]
async fn everything_moves_to_a_cluster_and_back() {
    let (wire, service, keys) = (WireServer::start(), PushService::start(), shared_keys());
    let bridges = service.bridges_file().display().to_string();
    let arguments = ["--simplepush=true", "--bridges-file", &bridges];
    let launch = Launch { keys: Some(keys.clone()), ..Launch::default() }.with(&arguments);
    let mut server = Server::launch(launch);
    let (dir, sender) = (server.data_dir(), Sender::new());
    let (uaid, channel) = Agent::offline(&server).await;
    let (second, quiet) = Agent::offline(&server).await;
    push(&channel.endpoint, "plain").await;
    for body in ["old of the topic", "new of the topic"] {
        let post = sender.post(&channel.endpoint).ttl(TTL_S).header("topic", "t");
        assert_eq!(post.body(body).send().await.status, 201);
    }
    let mut simple = SimpleAgent::connect(&server, None).await;
    let (id, simple_endpoint) = simple.register().await;
    simple.leave().await;
    simplepush::store(&simple_endpoint, "version=8&data=eight").await;
    let phone = phones::register(&sender, &server.origin(), "fcm", "a-token-of-fcm").await;
    assert!(server.terminate().success());
    server.run(&["feed", "put", "prices", "gold", "7"]).await.succeeded();
    let prices = price(Launch::default(), &dir).await;

    let there = copied("dynamodb", &dir, &wire.url).await;
    let there_again = digests("dynamodb", &dir, &wire.url).await;
    for table in there_again["tables"].as_array().expect("it is a list") {
        assert!(there.contains(table["sha256"].as_str().expect("it is a text")), "{there_again}");
    }
    assert_eq!(price(dynamo::launch(&wire.url), &dir).await, prices);
    assert!(prices.contains("gold = 7"), "{prices}");
    let node = |role, more: &[&str]| {
        let launch = dynamo::launch(&wire.url).with(&arguments).with(more);
        Server::launch(Launch { role, keys: Some(keys.clone()), ..launch })
    };
    let mut endpoints = node(Role::Endpoint, &[]);
    let public_url = format!("--public-url={}", endpoints.origin());
    let mut connections = node(Role::Connection, &[&public_url]);
    let moved = |endpoint: &str| endpoint.replace(&server.origin(), &endpoints.origin());
    let mut agent = Agent::reconnect(&connections, &uaid).await;
    let mut waited = agent.take(2).await;
    agent.ack_all(&waited).await;
    waited.sort_by(|one, other| one.body().cmp(other.body()));
    assert_eq!([waited[0].body(), waited[1].body()], ["new of the topic", "plain"]);
    assert_eq!(agent.pending_notifications().await, []);
    let same = Channel { endpoint: moved(&channel.endpoint), ..channel };
    sender.push_to(&mut agent, &same, "to an old subscription").await;
    let mut simple = simple.reconnect(&connections).await;
    simple.gets(json!({"channelID": id, "version": 8, "data": "eight"})).await;
    simple.ack(json!({"channelID": id, "version": 8})).await;
    simple.has_nothing_more().await;
    assert_eq!(service.messages().len(), 0);
    push(&moved(&phone.endpoint), "to a phone").await;
    assert_eq!(service.messages().len(), 1);
    push(&moved(&quiet.endpoint), "of the cluster").await;
    // A record that names a killed node is copied without it.
    connections.kill();
    endpoints.kill();

    assert_refused("embedded", &dir, &wire.url, "move router.db* and messages_*.db* away").await;
    remove_store(&dir);
    copied("embedded", &dir, &wire.url).await;
    assert!(id_floor(&dir).await > Time(0), "ids continue above the copied ones");
    let back = digests("embedded", &dir, &wire.url).await;
    assert_eq!(back, digests("dynamodb", &dir, &wire.url).await);
    assert_ne!(back, there_again, "messages were acked and others stored");
    server.restart();
    let mut agent = Agent::reconnect(&server, &second).await;
    let waited = agent.take(1).await;
    assert_eq!(waited[0].body(), "of the cluster");
    agent.ack_all(&waited).await;
    assert_eq!(agent.pending_notifications().await, []);
    let mut agent = Agent::reconnect(&server, &uaid).await;
    assert_eq!(agent.pending_notifications().await, [], "acked in the cluster");
    let same =
        Channel { endpoint: same.endpoint.replace(&endpoints.origin(), &server.origin()), ..same };
    sender.push_to(&mut agent, &same, "back again").await;
}

#[actix_web::test]
async fn a_copy_to_dynamodb_that_is_killed_is_finished_by_the_next_one() {
    let (wire, keys) = (WireServer::start(), shared_keys());
    let proxy = Proxy::to(&wire.url);
    let (server, uaid, _) = with_pushes(&keys).await;
    let dir = server.data_dir();
    proxy.rule(Rule::on("BatchWriteItem", Fault::HeldThenCut).after(3));
    let killed = Program::start(copy("dynamodb", &dir, &proxy.url(), &["--server-stopped"]));
    within(BEGINS_WITHIN, "a batch of messages is sent", proxy.held(1)).await;
    killed.kill().await;
    proxy.clear_rules();

    let launch = || Launch { keys: Some(keys.clone()), ..dynamo::launch(&proxy.url()) };
    let not_started = Server::try_launch(launch()).err().expect("the copy is not finished");
    let why = format!("unfinished copy of {}", dir.display());
    assert!(not_started.to_string().contains(&why), "{not_started}");
    let verified =
        run("dynamodb", &dir, &proxy.url(), &["--server-stopped", "--verify-only"]).await;
    verified.failed(1, "differs from its source in 2");
    let (other, ..) = with_pushes(&keys).await;
    assert_refused("dynamodb", &other.data_dir(), &proxy.url(), &why).await;
    let (stranger, ..) = with_pushes(&shared_keys()).await;
    let foreign = "none of the crypto_keys is one that the nodes on these tables have had";
    assert_refused("dynamodb", &stranger.data_dir(), &proxy.url(), foreign).await;

    copied("dynamodb", &dir, &proxy.url()).await;
    assert_each_once(&Server::launch(launch()), &uaid).await;
}

#[actix_web::test]
async fn a_copy_to_sqlite_that_is_killed_is_finished_by_the_next_one() {
    let (wire, keys) = (WireServer::start(), shared_keys());
    let proxy = Proxy::to(&wire.url);
    let (mut server, uaid, _) = with_pushes(&keys).await;
    let dir = server.data_dir();
    copied("dynamodb", &dir, &proxy.url()).await;
    remove_store(&dir);
    proxy.rule(Rule::on("Scan", Fault::HeldThenCut).table("message"));
    let killed = Program::start(copy("embedded", &dir, &proxy.url(), &["--server-stopped"]));
    within(BEGINS_WITHIN, "the first month is read", proxy.held(1)).await;
    killed.kill().await;
    proxy.clear_rules();
    let not_started = server.try_restart().expect_err("the copy is not finished").to_string();
    assert!(not_started.contains("unfinished copy of the tables router"), "{not_started}");
    let home = TempDir::new().unwrap();
    let file = home.path().join("a.tar");
    let backup = ["backup", &file.display().to_string()];
    server.run(&backup).await.failed(1, "unfinished copy");
    assert!(!file.exists());
    copied("embedded", &dir, &proxy.url()).await;
    server.restart();
    assert_each_once(&server, &uaid).await;
}

#[actix_web::test]
async fn a_copy_that_cannot_be_right_is_refused_before_anything_is_changed() {
    let (wire, keys) = (WireServer::start(), shared_keys());
    let launch = Launch { keys: Some(keys.clone()), ..Launch::default() };
    let (mut source, url) = (Server::launch(launch), &wire.url);
    Agent::offline(&source).await;
    let dir = source.data_dir();
    assert_refused("dynamodb", &dir, url, "a server is running").await;
    assert!(source.terminate().success());
    run("dynamodb", &dir, url, &[]).await.failed(1, "add --server-stopped");

    let launch = Launch { keys: Some(keys), ..dynamo::launch(url) };
    let mut there = Server::launch(launch);
    let (uaid, _) = Agent::offline(&there).await;
    assert!(there.terminate().success());
    assert_refused("dynamodb", &dir, url, "is not empty and is no unfinished copy").await;

    let home = TempDir::new().unwrap();
    assert_refused("embedded", home.path(), url, "there is no keys.toml in").await;
    let (mut stranger, ..) = with_pushes(&shared_keys()).await;
    remove_store(&stranger.data_dir());
    let foreign = "none of the crypto_keys is one that the nodes on these tables have had";
    assert_refused("embedded", &stranger.data_dir(), url, foreign).await;
    assert!(!stranger.data_dir().join("copying").exists(), "the directory is as it was");
    stranger.restart();

    there.restart();
    Agent::reconnect(&there, &uaid).await;
    source.restart();
}
