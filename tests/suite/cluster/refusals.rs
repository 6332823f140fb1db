//! Start-ups that must fail, with one precise message and before anything is opened.

use kalends::settings::keys;
use tempfile::TempDir;

use crate::harness::{
    Cluster, ExitOutput, Program, WireServer, dynamo, kalends, put_keys, shared_wire_server,
};

/// Valid settings of a connection node.
const RIGHT: [&str; 4] = [
    "--listen=127.0.0.1:0",
    "--router-listen=127.0.0.1:0",
    "--public-url=http://127.0.0.1:1",
    "--store=dynamodb",
];

struct Start {
    home: TempDir,
}

impl Start {
    fn new() -> Self {
        Self { home: TempDir::new().expect("a temporary directory can be made") }
    }

    fn data(&self) -> std::path::PathBuf {
        self.home.path().join("data")
    }

    /// Writes this text to `keys.toml`.
    fn with_keys(self, text: &str) -> Self {
        put_keys(&self.data(), text);
        self
    }

    async fn ends(&self, role: &str, url: &str, arguments: &[&str]) -> ExitOutput {
        let mut command = kalends(&["serve", "--role", role]);
        command.arg("--data-dir").arg(self.data()).args(arguments);
        let launch = dynamo::launch(url);
        let variables = launch.variables.iter().map(|(name, value)| (name, value));
        command.args(&launch.arguments[1..]).envs(variables);
        Program::run(command).await
    }

    /// Checks that replacing these settings makes the start fail as a bad setting, and that nothing
    /// was created.
    async fn is_a_bad_setting(&self, role: &str, other: &[&str], expected: &str) {
        let name = |argument: &str| argument.split('=').next().unwrap_or_default().to_owned();
        let others: Vec<_> = other.iter().map(|argument| name(argument)).collect();
        let right = RIGHT.iter().filter(|argument| !others.contains(&name(argument)));
        // An argument without a value is omitted.
        let given = other.iter().filter(|argument| argument.contains('='));
        let arguments: Vec<_> = right.chain(given).copied().collect();
        let ended = self.ends(role, "http://127.0.0.1:1", &arguments).await;
        ended.failed(2, expected);
        assert!(ended.stdout.is_empty() && !self.data().exists(), "{ended:?}");
    }
}

#[actix_web::test]
async fn conflicting_settings_are_rejected_before_anything_is_opened() {
    let start = Start::new();
    for role in ["connection", "endpoint"] {
        start.is_a_bad_setting(role, &["--store=embedded"], "store = \"dynamodb\"").await;
    }
    for (other, expected) in [
        (&["--public-url"][..], "public_url is not set"),
        (&["--router-listen=0.0.0.0:8081"], "set router_url"),
        (&["--router-url=http://10.0.0.5:8081"], "is not in nodes_allowed"),
        (&["--router-url=https://127.0.0.1:8081"], "router_url = `https://127.0.0.1:8081`"),
        (&["--nodes-allowed=10.0.0.0/8"], "is not in nodes_allowed"),
        (&["--nodes-allowed=http://10.0.0.1"], "nodes_allowed"),
        (
            &["--listen=127.0.0.1:8081", "--router-listen=127.0.0.1:8081"],
            "listen and router_listen are both port 8081",
        ),
    ] {
        start.is_a_bad_setting("connection", other, expected).await;
    }
}

#[actix_web::test]
async fn an_endpoint_node_on_a_public_address_requires_public_url() {
    let start = Start::new();
    let open = ["--public-url", "--listen=0.0.0.0:0"];
    start.is_a_bad_setting("endpoint", &open, "public_url is not set").await;
}

#[actix_web::test]
async fn two_nodes_cannot_share_a_data_directory() {
    let mut cluster = Cluster::start(0, 1);
    let start = Start::new();
    std::os::unix::fs::symlink(cluster.endpoint_nodes[0].data_dir(), start.data())
        .expect("it is new");
    for role in ["endpoint", "connection", "all"] {
        let ended = start.ends(role, &cluster.wire.url, &RIGHT).await;
        ended.failed(1, "is in use by another process");
    }
    // The lock is released when its process ends.
    cluster.endpoint_nodes[0].crash();
}

#[actix_web::test]
async fn a_cluster_node_generates_no_keys() {
    let wire = shared_wire_server();
    for role in ["connection", "endpoint"] {
        let start = Start::new();
        let ended = start.ends(role, &wire.url, &RIGHT).await;
        ended.refused_start(2, &["keys.toml"]);
        assert!(!start.data().join(keys::KEYS_FILE).exists());
    }
}

#[actix_web::test]
async fn a_cluster_node_without_a_cluster_key_is_rejected() {
    let wire = shared_wire_server();
    for role in ["connection", "endpoint"] {
        let start = Start::new().with_keys(&format!("crypto_keys = [\"{}\"]\n", *keys::generate()));
        let ended = start.ends(role, &wire.url, &RIGHT).await;
        ended.refused_start(2, &["kalends keys cluster"]);
    }
}

#[actix_web::test]
async fn a_router_port_in_use_is_rejected() {
    let wire = WireServer::start();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = taken.local_addr().expect("it has an address").to_string();
    let start = Start::new();
    let listen = format!("--router-listen={address}");
    let arguments = [RIGHT[0], &listen, RIGHT[2], RIGHT[3]];
    let ended = start.ends("connection", &wire.url, &arguments).await;
    ended.failed(1, &format!("cannot listen on {address}"));
    assert!(!start.data().exists());
}
