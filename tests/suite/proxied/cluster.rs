//! The cluster of the samples behind a proxy: three connection nodes and two endpoint nodes.

use futures_util::future::join_all;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::proxy_process;
use super::{Backends, Kind, ProxyProcess};
use crate::harness::{AT_ONCE, Agent, Channel, Cluster, ClusterPlan, Sender, until, within};

/// The number of agents or pushes of a test: three for each connection node.
const AGENTS: usize = 9;

/// The number of agents that connect at once after a restart of the nodes.
const STORM: usize = 36;

struct ProxiedCluster {
    proxy_process: ProxyProcess,
    cluster: Cluster,
}

/// An address that does not answer, like that of a machine that is down. Linux drops connections
/// for which the queue has no place.
struct Unresponsive {
    listener: TcpListener,
    _first: TcpStream,
}

impl Unresponsive {
    async fn new() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket can be made");
        socket.bind(([127, 0, 0, 1], 0).into()).expect("loopback has a free port");
        let listener = socket.listen(0).expect("a socket can listen");
        let address = listener.local_addr().expect("a bound socket has an address");
        let first = TcpStream::connect(address).await.expect("the queue has one place");
        Self { listener, _first: first }
    }

    fn address(&self) -> String {
        self.listener.local_addr().expect("a bound socket has an address").to_string()
    }
}

impl ProxiedCluster {
    async fn start(kind: Kind) -> Self {
        // The test does not wait for the end of a drain.
        let cluster =
            Cluster::launch(ClusterPlan::of(3, 2).with_connection_arguments(&["--drain-s=3600"]));
        let proxy_process =
            ProxyProcess::start(kind, proxy_process::reserve(), &Backends::cluster(&cluster)).await;
        Self { proxy_process, cluster }
    }

    /// Checks that the agent receives a push that is sent through the proxy.
    async fn push_latency(&self, agent: &mut Agent, sender: &Sender) {
        let channel = agent.register().await;
        let endpoint = self.endpoint(&channel);
        sender.push_to(agent, &Channel { endpoint, ..channel }, "hello").await;
    }

    /// Kills all connection nodes and restarts them one after the other. Agents keep connecting,
    /// and those that are accepted stay until their node ends.
    async fn restarts_all(&mut self) -> Vec<Agent> {
        let mut agents = Vec::new();
        for node in 0..self.cluster.connection_nodes.len() {
            self.cluster.connection_nodes[node].kill();
            agents.extend(self.storm(AGENTS).await);
            self.cluster.connection_nodes[node].restart();
        }
        agents
    }

    /// Connects this many agents at once, and returns the accepted ones.
    async fn storm(&self, agents: usize) -> Vec<Agent> {
        join_all((0..agents).map(|_| self.proxy_process.try_agent()))
            .await
            .into_iter()
            .flatten()
            .collect()
    }

    /// The URL of a channel's endpoint behind the proxy.
    fn endpoint(&self, channel: &Channel) -> String {
        format!("{}{}", self.proxy_process.origin(), channel.path(&self.cluster.endpoint_nodes[0]))
    }

    /// Sends SIGTERM to the first node, which then reports that it drains. It drains while one of
    /// these agents is connected; they are closed at random within an hour.
    async fn drains(&self) -> Vec<Agent> {
        let node = &self.cluster.connection_nodes[0];
        let agents = join_all((0..AGENTS).map(|_| Agent::new(node))).await;
        node.signal("TERM");
        node.drains(AT_ONCE).await;
        agents
    }
}

#[actix_web::test]
async fn agents_are_on_all_nodes_and_get_their_pushes_through_nginx_and_caddy() {
    for kind in [Kind::Nginx, Kind::Caddy] {
        println!("{kind:?}");
        let cluster = &ProxiedCluster::start(kind).await;
        let sender = Sender::new();
        let mut agents = Vec::new();
        for _ in 0..AGENTS {
            let mut agent = cluster.proxy_process.agent().await;
            cluster.push_latency(&mut agent, &sender).await;
            agents.push(agent);
        }
        for node in &cluster.cluster.connection_nodes {
            assert_eq!(node.connections().await, (AGENTS / 3) as u64, "agents are spread");
        }
    }
}

#[actix_web::test]
async fn nginx_sends_an_agent_of_a_draining_node_to_another_node() {
    let cluster = ProxiedCluster::start(Kind::Nginx).await;
    let _drained = cluster.drains().await;
    let sender = Sender::new();
    for _ in 0..AGENTS {
        let mut agent = cluster.proxy_process.agent().await;
        cluster.push_latency(&mut agent, &sender).await;
        agent.leave().await;
    }
    // At least one agent was sent to the draining node first.
    until(AT_ONCE, "an agent was taken on", async || {
        cluster.proxy_process.tried().contains("GET / 503, 101")
    })
    .await;
}

#[actix_web::test]
async fn caddy_sends_no_agents_to_a_draining_node_after_a_health_check() {
    let cluster = ProxiedCluster::start(Kind::Caddy).await;
    let _drained = cluster.drains().await;
    // Accepted agents stay, so that the draining node has the fewest connections for Caddy.
    until(AT_ONCE, "agents are let in one after the other", async || {
        let mut let_in = Vec::new();
        while let_in.len() < AGENTS {
            match cluster.proxy_process.try_agent().await {
                Some(agent) => let_in.push(agent),
                None => return false,
            }
        }
        true
    })
    .await;
}

#[actix_web::test]
async fn an_unresponsive_machine_delays_no_agent_behind_nginx_and_caddy() {
    for kind in [Kind::Nginx, Kind::Caddy] {
        println!("{kind:?}");
        let (gone, cluster) = (Unresponsive::new().await, Cluster::start(2, 1));
        let mut backends = Backends::cluster(&cluster);
        backends.connection_nodes.insert(0, gone.address());
        let proxy_process = ProxyProcess::start(kind, proxy_process::reserve(), &backends).await;
        // The node has the fewest connections, so all agents are sent to it first.
        let agents = async {
            let mut agents = Vec::new();
            for _ in 0..AGENTS {
                agents.push(proxy_process.agent().await);
            }
            agents
        };
        within(AT_ONCE, "all are let in", agents).await;
    }
}

#[actix_web::test]
async fn nginx_connects_all_agents_at_once_after_all_nodes_restarted() {
    let mut cluster = ProxiedCluster::start(Kind::Nginx).await;
    let before = cluster.restarts_all().await;
    let agents = cluster.storm(STORM).await;
    assert_eq!(agents.len(), STORM, "agents are let in");
    // Nodes were tried while they were down; nginx logs that when an agent disconnects.
    drop((before, agents));
    until(AT_ONCE, "agents were taken on", async || {
        cluster.proxy_process.tried().matches("GET / 502, 101").count()
            >= cluster.cluster.connection_nodes.len()
    })
    .await;
}

#[actix_web::test]
async fn caddy_connects_all_agents_after_it_has_seen_the_restarted_nodes() {
    let mut cluster = ProxiedCluster::start(Kind::Caddy).await;
    let _before = cluster.restarts_all().await;
    // Accepted agents stay, so that no connection ends from which Caddy could learn.
    let mut agents = Vec::new();
    until(AT_ONCE, "all agents are let in", async || {
        agents.extend(cluster.storm(STORM - agents.len()).await);
        agents.len() == STORM
    })
    .await;
}

#[actix_web::test]
async fn caddy_sends_an_agent_of_a_dead_node_to_another_node() {
    let mut cluster = ProxiedCluster::start(Kind::Caddy).await;
    cluster.cluster.connection_nodes[0].kill();
    let mut agents = Vec::new();
    for _ in 0..AGENTS {
        agents.push(cluster.proxy_process.agent().await);
    }
    let node = &cluster.cluster.connection_nodes[1];
    assert!(node.connections().await >= (AGENTS / 3) as u64, "agents are spread");
}

#[actix_web::test]
async fn no_push_fails_behind_nginx_when_an_endpoint_node_dies() {
    let (cluster, endpoint) = without_an_endpoint_node(Kind::Nginx).await;
    assert_eq!(statuses(&endpoint).await, [201; AGENTS]);
    assert!(
        cluster.proxy_process.tried().contains(" 502, 201"),
        "{}",
        cluster.proxy_process.tried()
    );
}

#[actix_web::test]
async fn pushes_succeed_behind_caddy_once_it_has_seen_a_dead_endpoint_node() {
    let (_scene, endpoint) = without_an_endpoint_node(Kind::Caddy).await;
    until(AT_ONCE, "pushes are taken", async || statuses(&endpoint).await == [201; AGENTS]).await;
}

/// A cluster with one killed endpoint node, and the endpoint of an offline agent.
async fn without_an_endpoint_node(kind: Kind) -> (ProxiedCluster, String) {
    let mut cluster = ProxiedCluster::start(kind).await;
    let mut agent = cluster.proxy_process.agent().await;
    let channel = agent.register().await;
    agent.leave().await;
    let endpoint = cluster.endpoint(&channel);
    assert_eq!(statuses(&endpoint).await, [201; AGENTS]);
    cluster.cluster.endpoint_nodes[1].kill();
    (cluster, endpoint)
}

/// The statuses of consecutive pushes.
async fn statuses(endpoint: &str) -> Vec<u16> {
    let sender = Sender::new();
    let mut statuses = Vec::new();
    for _ in 0..AGENTS {
        let push = sender.post(endpoint).ttl(60).body("x").send().await;
        statuses.push(push.status);
    }
    statuses
}
