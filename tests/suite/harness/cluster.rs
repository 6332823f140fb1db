//! Connection nodes and endpoint nodes as processes, over one DynamoDB server.

use kalends::keys;

use super::{Channel, Launch, Proxy, Role, Server, WireServer, dynamo};

/// Running nodes. A node is killed, restarted on its old ports, and terminated as any [`Server`] is.
///
/// Endpoints begin with the origin of the first endpoint node, whichever connection node hands them out.
pub(crate) struct Cluster {
    pub(crate) connects: Vec<Server>,
    pub(crate) endpoints: Vec<Server>,
    /// Between all nodes and their tables.
    pub(crate) proxy: Proxy,
    pub(crate) wire: WireServer,
    plan: Plan,
    keys: String,
}

/// What a cluster has.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) connects: usize,
    pub(crate) endpoints: usize,
    /// More arguments for every node.
    pub(crate) arguments: Vec<String>,
    /// More arguments for connection nodes.
    pub(crate) for_connects: Vec<String>,
    /// More arguments for endpoint nodes.
    pub(crate) for_endpoints: Vec<String>,
}

impl Plan {
    /// So many nodes, which look for nothing by themselves: what they ask of the store is asked for a user.
    pub(crate) fn of(connects: usize, endpoints: usize) -> Self {
        let arguments = ["--feed-poll-ms=600000", "--feed-sweep-s=86400"].map(str::to_owned).into();
        let (for_connects, for_endpoints) = (Vec::new(), Vec::new());
        Self { connects, endpoints, arguments, for_connects, for_endpoints }
    }

    /// The same with more arguments for every node. An argument that is there already is replaced.
    pub(crate) fn with(mut self, arguments: &[&str]) -> Self {
        replace(&mut self.arguments, arguments);
        self
    }

    /// The same with more arguments for connection nodes.
    pub(crate) fn connects_with(mut self, arguments: &[&str]) -> Self {
        replace(&mut self.for_connects, arguments);
        self
    }

    /// The same with more arguments for endpoint nodes.
    pub(crate) fn endpoints_with(mut self, arguments: &[&str]) -> Self {
        replace(&mut self.for_endpoints, arguments);
        self
    }
}

/// Arguments are written `--name=value`; a name is given once.
fn replace(arguments: &mut Vec<String>, more: &[&str]) {
    let name = |argument: &str| argument.split('=').next().unwrap_or_default().to_owned();
    let given: Vec<_> = more.iter().map(|argument| name(argument)).collect();
    arguments.retain(|argument| !given.contains(&name(argument)));
    arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
}

impl Cluster {
    /// So many connection nodes and endpoint nodes.
    pub(crate) fn start(connects: usize, endpoints: usize) -> Self {
        Self::launch(Plan::of(connects, endpoints))
    }

    /// What the plan says. Without an endpoint node, whoever adds one says what endpoints begin with.
    pub(crate) fn launch(plan: Plan) -> Self {
        let wire = WireServer::start();
        let proxy = Proxy::to(&wire.url);
        let (connects, endpoints) = (Vec::new(), Vec::new());
        let keys = shared_keys();
        let mut cluster = Self { connects, endpoints, proxy, wire, plan, keys };
        for _ in 0..cluster.plan.endpoints {
            cluster.add_endpoint();
        }
        for _ in 0..cluster.plan.connects {
            cluster.add_connect();
        }
        cluster
    }

    /// One more endpoint node.
    pub(crate) fn add_endpoint(&mut self) {
        self.endpoints.push(Server::launch(self.launch_of(Role::Endpoint)));
    }

    /// One more connection node.
    pub(crate) fn add_connect(&mut self) {
        self.connects.push(Server::launch(self.launch_of(Role::Connect)));
    }

    /// How a node of this cluster is started.
    pub(crate) fn launch_of(&self, role: Role) -> Launch {
        let own = match role {
            Role::Connect => &self.plan.for_connects,
            Role::Endpoint => &self.plan.for_endpoints,
            Role::Serve => &Vec::new(),
        };
        let public_url =
            self.endpoints.first().map(|first| format!("--public-url={}", first.origin()));
        let launch = dynamo::launch(&self.proxy.url()).with(&self.plan.arguments).with(own);
        let launch = launch.with(&public_url.into_iter().collect::<Vec<_>>());
        Launch { role, keys: Some(self.keys.clone()), ..launch }
    }

    /// The channel's endpoint at an endpoint node, by its number.
    pub(crate) fn endpoint(&self, node: usize, channel: &Channel) -> String {
        format!("{}{}", self.endpoints[node].origin(), channel.path(&self.endpoints[0]))
    }
}

/// A `keys.toml` for every node.
fn shared_keys() -> String {
    let (crypto, cluster) = (keys::generate(), keys::generate());
    format!("crypto_keys = [\"{}\"]\ncluster_keys = [\"{}\"]\n", *crypto, *cluster)
}
