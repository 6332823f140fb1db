//! Keys that nodes share: a node whose keys differ from those of the others does not start.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use kalends::settings::keys::{KEYS_FILE, generate};

use super::starts::Start;
use crate::harness::{
    Agent, Launch, Program, Role, Server, WireServer, dynamo, kalends, shared_wire_server,
};

/// The arguments of a connection node besides its store.
const OF_A_NODE: [&str; 2] = ["--router-listen=127.0.0.1:0", "--public-url=http://127.0.0.1:1"];

fn keys_toml(crypto: &[&str], cluster: &[&str]) -> String {
    let crypto = format!("crypto_keys = {crypto:?}\n");
    match cluster {
        [] => crypto,
        keys => format!("{crypto}cluster_keys = {keys:?}\n"),
    }
}

fn fresh<const N: usize>() -> [String; N] {
    std::array::from_fn(|_| generate().to_string())
}

/// A start with this `keys.toml` in its data directory.
fn start_with(wire: &WireServer, keys: &str) -> Start {
    let start = Start::at(&wire.url);
    let path = start.data_dir().join(KEYS_FILE);
    fs::create_dir(start.data_dir()).expect("a directory can be made");
    fs::write(&path, keys).expect("a file can be written");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("its mode can be set");
    start
}

fn launch(wire: &WireServer, role: Role, keys: &str) -> Server {
    let launch = dynamo::launch(&wire.url).with(&OF_A_NODE[1..]);
    Server::launch(Launch { role, keys: Some(keys.to_owned()), ..launch })
}

#[actix_web::test]
async fn a_server_with_other_crypto_keys_than_its_tables_is_rejected() {
    let wire = WireServer::start();
    let [ours, new, other] = fresh();
    let [ours, new, other] = [&*ours, &*new, &*other];
    let mut first = launch(&wire, Role::All, &keys_toml(&[ours], &[]));
    Agent::offline(&first).await;
    let strange = start_with(&wire, &keys_toml(&[other], &[]));
    let expected = ["keys.toml", "none of the crypto_keys", "copy keys.toml from"];
    strange.is_refused_for_its_keys(&expected).await;

    // A key is rotated: the new one is the first, and the old one stays until every node has the
    // new one.
    for rolled in [&[ours][..], &[new, ours], &[new]] {
        let mut second = launch(&wire, Role::All, &keys_toml(rolled, &[]));
        assert!(second.terminate().success(), "{}", second.log());
    }
    strange.is_refused_for_its_keys(&expected).await;
    assert!(first.terminate().success());
}

/// Tables without records require no keys.
#[actix_web::test]
async fn other_keys_are_accepted_while_no_agent_is_registered() {
    let wire = WireServer::start();
    for _ in 0..2 {
        let [crypto] = fresh();
        let mut server = launch(&wire, Role::All, &keys_toml(&[&crypto], &[]));
        assert!(server.terminate().success(), "{}", server.log());
    }
}

#[actix_web::test]
async fn a_cluster_node_without_keys_is_rejected_with_a_remedy() {
    let wire = shared_wire_server();
    for role in ["connection", "endpoint"] {
        let start = Start::at(&wire.url).with(&OF_A_NODE);
        start
            .is_no_start_as(role, 2, &["no keys.toml in", "kalends keys cluster --data-dir"])
            .await;
        assert!(!start.data_dir().join(KEYS_FILE).exists(), "it made keys of its own");

        let [crypto] = fresh();
        let start = start_with(wire, &keys_toml(&[&crypto], &[])).with(&OF_A_NODE);
        start
            .is_no_start_as(role, 2, &["no cluster_keys", "kalends keys cluster --data-dir"])
            .await;
    }
}

#[actix_web::test]
async fn nodes_start_with_the_shared_keys_only() {
    let wire = WireServer::start();
    let made = Start::at(&wire.url);
    let path = made.data_dir().join(KEYS_FILE);
    add_cluster_key(&made).await;
    let keys = fs::read_to_string(&path).expect("it was made");
    let mut connect = launch(&wire, Role::Connection, &keys);
    let mut endpoint = launch(&wire, Role::Endpoint, &keys);
    Agent::offline(&connect).await;

    let [crypto, cluster] = fresh();
    let contents: toml::Table = toml::from_str(&keys).expect("it is TOML");
    let shared = contents["crypto_keys"][0].as_str().expect("it is a text");
    let other_cluster = start_with(&wire, &keys_toml(&[shared], &[&cluster])).with(&OF_A_NODE);
    other_cluster.is_no_start_as("endpoint", 2, &["none of the cluster_keys"]).await;
    other_cluster.is_found(&["none of the cluster_keys"]).await;
    let other = start_with(&wire, &keys_toml(&[&crypto], &[&cluster])).with(&OF_A_NODE);
    other.is_no_start_as("connection", 2, &["none of the crypto_keys"]).await;

    add_cluster_key(&made).await;
    let rolled = fs::read_to_string(&path).expect("it is there");
    assert_ne!(rolled, keys);
    let mut second = launch(&wire, Role::Endpoint, &rolled);
    for node in [&mut connect, &mut endpoint, &mut second] {
        assert!(node.terminate().success(), "{}", node.log());
    }
}

async fn add_cluster_key(start: &Start) {
    let mut command = kalends(&["keys", "cluster", "--data-dir"]);
    command.arg(start.data_dir());
    let ended = Program::run(command).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("into the data directory of every node"), "{ended:?}");
}
