//! Connection nodes and endpoint nodes as processes, over one DynamoDB server or another store.

use std::path::PathBuf;

use hyper::Method;
use kalends::cluster::signature::{ClusterKeys, Request};
use kalends::settings::keys;
use kalends::settings::keys::Keys;
use serde_json::json;
use state_machine::{NodeId, Time};

use super::{Channel, Launch, Proxy, Role, Sender, Server, WireServer, dynamo, unix_now_s};

/// Running nodes. A node is killed, restarted on its old ports, and terminated like any [`Server`].
///
/// All endpoints start with the origin of the first endpoint node.
pub(crate) struct Cluster {
    pub(crate) connection_nodes: Vec<Server>,
    pub(crate) endpoint_nodes: Vec<Server>,
    /// Between all nodes and their tables.
    pub(crate) proxy: Proxy,
    pub(crate) wire: WireServer,
    plan: ClusterPlan,
    keys: String,
}

/// The number of nodes and their arguments.
#[derive(Debug, Clone)]
pub(crate) struct ClusterPlan {
    pub(crate) connection_nodes: usize,
    pub(crate) endpoint_nodes: usize,
    /// Arguments of every node.
    pub(crate) arguments: Vec<String>,
    /// Arguments of connection nodes only.
    pub(crate) connection_arguments: Vec<String>,
    /// Arguments of endpoint nodes only.
    pub(crate) endpoint_arguments: Vec<String>,
    /// How a node on another store than DynamoDB is started. The proxy has no requests then.
    pub(crate) store: Option<Launch>,
    /// Another build of `kalends`, which every second node of each role is of.
    pub(crate) beside: Option<PathBuf>,
    /// The clocks of the first nodes of each role. Those of the others are right.
    pub(crate) clocks: Clocks,
}

/// Seconds by which the clock of each node is ahead of the machine's; a negative number is behind it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Clocks {
    pub(crate) connection_nodes: Vec<i64>,
    pub(crate) endpoint_nodes: Vec<i64>,
}

impl ClusterPlan {
    /// Nodes without periodic feed requests, so that every request to the store is caused by a
    /// user.
    pub(crate) fn of(connection_nodes: usize, endpoint_nodes: usize) -> Self {
        let arguments = ["--feed-poll-ms=600000", "--feed-sweep-s=86400"].map(str::to_owned).into();
        let (connection_arguments, endpoint_arguments) = (Vec::new(), Vec::new());
        Self {
            connection_nodes,
            endpoint_nodes,
            arguments,
            connection_arguments,
            endpoint_arguments,
            store: None,
            beside: None,
            clocks: Clocks::default(),
        }
    }

    /// Starts every second node of each role as this build.
    pub(crate) fn beside(self, program: Option<PathBuf>) -> Self {
        Self { beside: program, ..self }
    }

    /// Starts nodes whose clocks are apart.
    pub(crate) fn with_clocks(self, clocks: Clocks) -> Self {
        Self { clocks, ..self }
    }

    /// Keeps the tables in another store than DynamoDB.
    pub(crate) fn on(self, store: Option<Launch>) -> Self {
        Self { store, ..self }
    }

    /// Adds arguments for every node; an argument with the same name is replaced.
    pub(crate) fn with(mut self, arguments: &[&str]) -> Self {
        replace(&mut self.arguments, arguments);
        self
    }

    /// Adds arguments for connection nodes.
    pub(crate) fn with_connection_arguments(mut self, arguments: &[&str]) -> Self {
        replace(&mut self.connection_arguments, arguments);
        self
    }

    /// Adds arguments for endpoint nodes.
    pub(crate) fn with_endpoint_arguments(mut self, arguments: &[&str]) -> Self {
        replace(&mut self.endpoint_arguments, arguments);
        self
    }
}

/// Appends arguments of the form `--name=value`, and removes earlier ones of the same name.
fn replace(arguments: &mut Vec<String>, more: &[&str]) {
    let name = |argument: &str| argument.split('=').next().unwrap_or_default().to_owned();
    let given: Vec<_> = more.iter().map(|argument| name(argument)).collect();
    arguments.retain(|argument| !given.contains(&name(argument)));
    arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
}

impl Cluster {
    /// Starts a cluster with this number of nodes and default arguments.
    pub(crate) fn start(connection_nodes: usize, endpoint_nodes: usize) -> Self {
        Self::launch(ClusterPlan::of(connection_nodes, endpoint_nodes))
    }

    /// Starts the planned nodes. Without an endpoint node, the test sets `--public-url` itself.
    pub(crate) fn launch(plan: ClusterPlan) -> Self {
        let wire = WireServer::start();
        let proxy = Proxy::to(&wire.url);
        let (connection_nodes, endpoint_nodes) = (Vec::new(), Vec::new());
        let keys = shared_keys();
        let mut cluster = Self { connection_nodes, endpoint_nodes, proxy, wire, plan, keys };
        for _ in 0..cluster.plan.endpoint_nodes {
            cluster.add_endpoint_node();
        }
        for _ in 0..cluster.plan.connection_nodes {
            cluster.add_connection_node();
        }
        cluster
    }

    /// Starts a further endpoint node.
    pub(crate) fn add_endpoint_node(&mut self) {
        let number = self.endpoint_nodes.len();
        let ahead_s = self.plan.clocks.endpoint_nodes.get(number);
        let launch = self.launch_of(Role::Endpoint).with(&ahead_by(ahead_s));
        self.endpoint_nodes.push(Server::launch(self.build_of(number, launch)));
    }

    /// Starts a further connection node.
    pub(crate) fn add_connection_node(&mut self) {
        let number = self.connection_nodes.len();
        let ahead_s = self.plan.clocks.connection_nodes.get(number);
        let launch = self.launch_of(Role::Connection).with(&ahead_by(ahead_s));
        self.connection_nodes.push(Server::launch(self.build_of(number, launch)));
    }

    fn build_of(&self, number: usize, launch: Launch) -> Launch {
        let program = self.plan.beside.clone().filter(|_| number % 2 == 1);
        Launch { program, ..launch }
    }

    /// The launch parameters of a node of this cluster.
    pub(crate) fn launch_of(&self, role: Role) -> Launch {
        let own = match role {
            Role::Connection => &self.plan.connection_arguments,
            Role::Endpoint => &self.plan.endpoint_arguments,
            Role::All => &Vec::new(),
        };
        let public_url =
            self.endpoint_nodes.first().map(|first| format!("--public-url={}", first.origin()));
        let store = self.plan.store.clone();
        let launch = store.unwrap_or_else(|| dynamo::launch(&self.proxy.url()));
        let launch = launch.with(&self.plan.arguments).with(own);
        let launch = launch.with(&public_url.into_iter().collect::<Vec<_>>());
        Launch { role, keys: Some(self.keys.clone()), ..launch }
    }

    /// The channel's endpoint URL at the endpoint node with this index.
    pub(crate) fn endpoint(&self, node: usize, channel: &Channel) -> String {
        format!("{}{}", self.endpoint_nodes[node].origin(), channel.path(&self.endpoint_nodes[0]))
    }
}

impl Clocks {
    /// The clock of the connection node that is ahead of all others.
    pub(crate) fn latest_of_connection_nodes_s(&self) -> i64 {
        self.connection_nodes.iter().copied().max().unwrap_or(0)
    }
}

/// The arguments of a node whose clock is not that of the machine.
fn ahead_by(seconds: Option<&i64>) -> Vec<String> {
    let offset = seconds.map(|seconds| format!("--clock-offset-s={seconds}"));
    offset.map_or_else(Vec::new, |offset| vec!["--dev".to_owned(), offset])
}

/// Introduces an endpoint node that does not exist to a connection node, signed with these keys. Returns the status of the
/// answer.
pub(crate) async fn introduce(to: &Server, keys: &Keys, name: &str, version: &str) -> u16 {
    let time_ms = unix_now_s() * 1000;
    let body = json!({"name": name, "role": "endpoint", "version": version, "time_ms": time_ms});
    let (body, node) = (body.to_string(), NodeId::new(&to.router_url()));
    let path = format!("/notif/{}", "0".repeat(32));
    let request = Request { method: "PUT", path: &path, node: &node, body: body.as_bytes() };
    let keys = ClusterKeys::derive(keys).expect("the nodes of a cluster have keys");
    let (authorization, _) = keys.sign(&request, Time(time_ms));
    let sender = Sender::new();
    let request = sender.request(Method::PUT, &format!("{node}{path}"));
    request.header("authorization", &authorization).raw_body(body).send().await.status
}

/// The contents of a `keys.toml` that all nodes share.
pub(crate) fn shared_keys() -> String {
    let [crypto, cluster, auth] = std::array::from_fn(|_| keys::generate());
    format!(
        "crypto_keys = [\"{}\"]\ncluster_keys = [\"{}\"]\nauth_keys = [\"{}\"]\n",
        *crypto, *cluster, *auth
    )
}
