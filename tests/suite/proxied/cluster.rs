//! A cluster behind a proxy, as the samples have it: three connection nodes and two endpoint nodes.

use futures_util::future::join_all;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::front;
use super::{Behind, Front, Kind};
use crate::harness::{AT_ONCE, Agent, Channel, Cluster, Plan, Sender, until, within};

/// Agents of a test, or pushes: three times the connection nodes.
const AGENTS: usize = 9;

/// Agents that come at once, when their nodes were restarted.
const STORM: usize = 36;

struct Scene {
    front: Front,
    cluster: Cluster,
}

/// An address where connections are waited for in vain, as if the machine were gone. Linux answers nobody whose
/// connection has no place in the queue.
struct Gone {
    listener: TcpListener,
    _first: TcpStream,
}

impl Gone {
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

impl Scene {
    async fn start(kind: Kind) -> Self {
        // The end of a drain is not waited for here.
        let cluster = Cluster::launch(Plan::of(3, 2).connects_with(&["--drain-s=3600"]));
        let front = Front::start(kind, front::reserve(), &Behind::cluster(&cluster)).await;
        Self { front, cluster }
    }

    /// An agent gets a push that came through the proxy too.
    async fn gets_a_push(&self, agent: &mut Agent, sender: &Sender) {
        let channel = agent.register().await;
        let endpoint = self.endpoint(&channel);
        sender.push_to(agent, &Channel { endpoint, ..channel }, "hello").await;
    }

    /// All connection nodes die and are started again, one after the other. Agents come all the time, and those that
    /// are let in stay for as long as their node does.
    async fn restarts_all(&mut self) -> Vec<Agent> {
        let mut agents = Vec::new();
        for node in 0..self.cluster.connects.len() {
            self.cluster.connects[node].kill();
            agents.extend(self.storm(AGENTS).await);
            self.cluster.connects[node].restart();
        }
        agents
    }

    /// So many agents at once: those that are let in.
    async fn storm(&self, agents: usize) -> Vec<Agent> {
        join_all((0..agents).map(|_| self.front.try_agent())).await.into_iter().flatten().collect()
    }

    /// Where a channel's endpoint is behind the proxy.
    fn endpoint(&self, channel: &Channel) -> String {
        format!("{}{}", self.front.origin(), channel.path(&self.cluster.endpoints[0]))
    }

    /// The first node is told to stop and says so to whoever asks for its health. It does so for as long as there is one
    /// of these agents, which are closed at random in an hour.
    async fn drains(&self) -> Vec<Agent> {
        let node = &self.cluster.connects[0];
        let agents = join_all((0..AGENTS).map(|_| Agent::new(node))).await;
        node.signal("TERM");
        let beat = format!("{}/__lbheartbeat__", node.origin());
        let sender = Sender::new();
        until(AT_ONCE, "it drains", async || sender.get(&beat).await.status == 503).await;
        agents
    }
}

#[actix_web::test]
async fn agents_are_on_all_nodes_and_get_their_pushes_through_nginx() {
    all_nodes_are_used(&Scene::start(Kind::Nginx).await).await;
}

#[actix_web::test]
async fn agents_are_on_all_nodes_and_get_their_pushes_through_caddy() {
    all_nodes_are_used(&Scene::start(Kind::Caddy).await).await;
}

async fn all_nodes_are_used(scene: &Scene) {
    let sender = Sender::new();
    let mut agents = Vec::new();
    for _ in 0..AGENTS {
        let mut agent = scene.front.agent().await;
        scene.gets_a_push(&mut agent, &sender).await;
        agents.push(agent);
    }
    for node in &scene.cluster.connects {
        assert_eq!(node.connections().await, (AGENTS / 3) as u64, "agents are spread");
    }
}

#[actix_web::test]
async fn nginx_takes_an_agent_that_comes_to_a_draining_node_to_another() {
    let scene = Scene::start(Kind::Nginx).await;
    let _drained = scene.drains().await;
    let sender = Sender::new();
    for _ in 0..AGENTS {
        let mut agent = scene.front.agent().await;
        scene.gets_a_push(&mut agent, &sender).await;
        agent.leave().await;
    }
    // The draining node was the first for at least one of them.
    until(AT_ONCE, "an agent was taken on", async || {
        scene.front.tried().contains("GET / 503, 101")
    })
    .await;
}

#[actix_web::test]
async fn caddy_sends_no_agents_to_a_draining_node_once_it_has_looked() {
    let scene = Scene::start(Kind::Caddy).await;
    let _drained = scene.drains().await;
    // Those that were let in stay, so that the draining node has the fewest of all as Caddy sees it.
    until(AT_ONCE, "agents are let in one after the other", async || {
        let mut let_in = Vec::new();
        while let_in.len() < AGENTS {
            match scene.front.try_agent().await {
                Some(agent) => let_in.push(agent),
                None => return false,
            }
        }
        true
    })
    .await;
}

#[actix_web::test]
async fn agents_wait_for_no_machine_that_is_gone_behind_nginx() {
    agents_wait_for_none_that_is_gone(Kind::Nginx).await;
}

#[actix_web::test]
async fn agents_wait_for_no_machine_that_is_gone_behind_caddy() {
    agents_wait_for_none_that_is_gone(Kind::Caddy).await;
}

async fn agents_wait_for_none_that_is_gone(kind: Kind) {
    let (gone, cluster) = (Gone::new().await, Cluster::start(2, 1));
    let mut behind = Behind::cluster(&cluster);
    behind.connects.insert(0, gone.address());
    let front = Front::start(kind, front::reserve(), &behind).await;
    // It has the fewest agents, so all of them are sent to it first.
    let agents = async {
        let mut agents = Vec::new();
        for _ in 0..AGENTS {
            agents.push(front.agent().await);
        }
        agents
    };
    within(AT_ONCE, "all are let in", agents).await;
}

#[actix_web::test]
async fn nginx_lets_all_agents_in_at_once_when_all_nodes_were_restarted() {
    let mut scene = Scene::start(Kind::Nginx).await;
    let before = scene.restarts_all().await;
    let agents = scene.storm(STORM).await;
    assert_eq!(agents.len(), STORM, "agents are let in");
    // Nodes were tried while they were away. nginx says so when an agent goes.
    drop((before, agents));
    until(AT_ONCE, "agents were taken on", async || {
        scene.front.tried().matches("GET / 502, 101").count() >= scene.cluster.connects.len()
    })
    .await;
}

#[actix_web::test]
async fn caddy_lets_all_agents_in_when_it_has_seen_that_the_nodes_are_back() {
    let mut scene = Scene::start(Kind::Caddy).await;
    let _before = scene.restarts_all().await;
    // Those that are let in stay: nothing ends well that Caddy could learn from.
    let mut agents = Vec::new();
    until(AT_ONCE, "all agents are let in", async || {
        agents.extend(scene.storm(STORM - agents.len()).await);
        agents.len() == STORM
    })
    .await;
}

#[actix_web::test]
async fn caddy_takes_an_agent_that_comes_to_a_dead_node_to_another() {
    let mut scene = Scene::start(Kind::Caddy).await;
    scene.cluster.connects[0].kill();
    let mut agents = Vec::new();
    for _ in 0..AGENTS {
        agents.push(scene.front.agent().await);
    }
    let node = &scene.cluster.connects[1];
    assert!(node.connections().await >= (AGENTS / 3) as u64, "agents are spread");
}

#[actix_web::test]
async fn no_push_fails_behind_nginx_because_an_endpoint_node_died() {
    let (scene, endpoint) = without_an_endpoint_node(Kind::Nginx).await;
    assert_eq!(statuses(&endpoint).await, [201; AGENTS]);
    assert!(scene.front.tried().contains(" 502, 201"), "{}", scene.front.tried());
}

#[actix_web::test]
async fn pushes_are_taken_behind_caddy_once_it_has_seen_that_an_endpoint_node_died() {
    let (_scene, endpoint) = without_an_endpoint_node(Kind::Caddy).await;
    until(AT_ONCE, "pushes are taken", async || statuses(&endpoint).await == [201; AGENTS]).await;
}

/// A cluster one of whose endpoint nodes was killed, and the endpoint of an agent that is away.
async fn without_an_endpoint_node(kind: Kind) -> (Scene, String) {
    let mut scene = Scene::start(kind).await;
    let mut agent = scene.front.agent().await;
    let channel = agent.register().await;
    agent.leave().await;
    let endpoint = scene.endpoint(&channel);
    assert_eq!(statuses(&endpoint).await, [201; AGENTS]);
    scene.cluster.endpoints[1].kill();
    (scene, endpoint)
}

/// What some pushes, one after the other, are answered.
async fn statuses(endpoint: &str) -> Vec<u16> {
    let sender = Sender::new();
    let mut statuses = Vec::new();
    for _ in 0..AGENTS {
        let push = sender.post(endpoint).ttl(60).body("x").send().await;
        statuses.push(push.status);
    }
    statuses
}
