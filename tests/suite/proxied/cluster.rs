//! A cluster behind a proxy, as the samples have it: three connection nodes and two endpoint nodes.

use futures_util::future::join_all;

use super::front;
use super::{Behind, Front, Kind};
use crate::harness::{AT_ONCE, Agent, Channel, Cluster, Plan, Sender, until};

/// Agents of a test, or pushes: three times the connection nodes.
const AGENTS: usize = 9;

struct Scene {
    front: Front,
    cluster: Cluster,
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
