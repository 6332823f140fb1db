//! SIGTERM to a connection node: its agents move to another node one after the other, and no
//! message is lost.

use std::cell::Cell;
use std::collections::BTreeSet;

use futures_util::future::join_all;
use tokio_tungstenite::tungstenite::Error;

use super::node_of;
use crate::harness::{AT_ONCE, Agent, Channel, Cluster, ClusterPlan, Sender, Server, Socket};

/// The body of the last message.
const LAST: &str = "the last";

fn draining_cluster(drain_s: u32) -> Cluster {
    Cluster::launch(
        ClusterPlan::of(2, 1).with_connection_arguments(&[
            &format!("--drain-s={drain_s}"),
            "--shutdown-wait-ms=600000",
        ]),
    )
}

#[actix_web::test]
async fn agents_of_a_draining_node_move_one_by_one_and_miss_nothing() {
    const AGENTS: usize = 20;
    let mut cluster = draining_cluster(2);
    let node = &cluster.connection_nodes[0];
    let agents = join_all((0..AGENTS).map(|_| Agent::subscribed(node))).await;
    let [draining, other] = &mut cluster.connection_nodes[..] else { panic!("there are two") };
    let is_over = Cell::new(false);
    draining.signal("TERM");
    let (is_over, other) = (&is_over, &*other);
    let lives = join_all(agents.into_iter().map(async |(agent, channel)| {
        tokio::join!(sends(channel, is_over), stays_to_the_end(agent, other))
    }));
    let end = async {
        let ended = draining.ended_within(AT_ONCE).await;
        is_over.set(true);
        ended
    };
    let (lives, ended) = tokio::join!(lives, end);
    assert_eq!(ended.code(), Some(0));
    for (sent, (mut agent, mut received)) in lives {
        // What was not acked when the node closed the session may arrive after the last message.
        while !received.is_superset(&sent) {
            received.insert(agent.take(1).await[0].body().to_owned());
        }
    }
    assert!(draining.log().contains("closing sessions"), "{}", draining.log());
}

/// Pushes until `is_over` is set, and returns the accepted messages.
async fn sends(channel: Channel, is_over: &Cell<bool>) -> BTreeSet<String> {
    let (sender, mut sent) = (Sender::new(), BTreeSet::new());
    while !is_over.get() {
        let body = sent.len().to_string();
        sender.push(&channel.endpoint, &body).await;
        sent.insert(body);
    }
    sender.push(&channel.endpoint, LAST).await;
    sent.insert(LAST.to_owned());
    sent
}

/// Receives messages, and reconnects to the other node when this one closes the connection.
async fn stays_to_the_end(mut agent: Agent, other: &Server) -> (Agent, BTreeSet<String>) {
    let mut bodies = BTreeSet::new();
    while let Ok(notification) = agent.try_notification().await {
        agent.ack(&notification).await;
        bodies.insert(notification.body().to_owned());
    }
    let mut agent = Agent::reconnect(other, agent.uaid()).await;
    while !bodies.contains(LAST) {
        bodies.insert(agent.take(1).await[0].body().to_owned());
    }
    (agent, bodies)
}

#[actix_web::test]
async fn a_draining_node_is_unhealthy_rejects_agents_and_clears_its_records() {
    let mut cluster = draining_cluster(6);
    let node = &cluster.connection_nodes[0];
    let mut agents = join_all((0..10).map(async |_| Agent::subscribed(node).await.0)).await;
    node.signal("TERM");
    node.drains(AT_ONCE).await;
    match Socket::try_open(node).await {
        Err(Error::Http(response)) => assert_eq!(response.status().as_u16(), 503),
        other => panic!("{:?}", other.map(|_| "it was let in")),
    }
    join_all(agents.iter_mut().map(async |agent| {
        assert_eq!(agent.socket().closed().await.0, Some(1001));
    }))
    .await;
    let ended = cluster.connection_nodes[0].ended_within(AT_ONCE).await;
    assert_eq!(ended.code(), Some(0));
    for agent in &agents {
        assert_eq!(node_of(&cluster, agent.uaid()).await, None);
    }
}

#[actix_web::test]
async fn a_push_that_waits_for_its_ack_on_a_draining_node_is_stored() {
    let plan = ClusterPlan::of(2, 1)
        .with(&["--ack-wait-ms=600000"])
        .with_connection_arguments(&["--drain-s=1"]);
    let cluster = Cluster::launch(plan);
    let (mut agent, channel) = Agent::subscribed(&cluster.connection_nodes[0]).await;
    let sender = Sender::new();
    let push = sender.push(&channel.endpoint, "waits");
    let drained = async {
        let first = agent.notification().await;
        cluster.connection_nodes[0].signal("TERM");
        assert_eq!(agent.socket().closed().await.0, Some(1001));
        first
    };
    let (_, first) = tokio::join!(push, drained);
    let mut agent = Agent::reconnect(&cluster.connection_nodes[1], agent.uaid()).await;
    assert_eq!(agent.notification().await, first);
}

#[actix_web::test]
async fn a_second_signal_ends_a_drain_at_once() {
    for role in ["connection", "endpoint"] {
        let plan = ClusterPlan::of(1, 1).with(&["--drain-s=600", "--drain-lame-duck-s=600"]);
        let mut cluster = Cluster::launch(plan);
        let (mut first, _) = Agent::subscribed(&cluster.connection_nodes[0]).await;
        let (mut last, _) = Agent::subscribed(&cluster.connection_nodes[0]).await;
        let node = match role {
            "connection" => &mut cluster.connection_nodes[0],
            _ => &mut cluster.endpoint_nodes[0],
        };
        node.signal("TERM");
        node.drains(AT_ONCE).await;
        if role == "connection" {
            // One agent is closed at once; the other one would have half of the time.
            let closed = tokio::select! {
                closed = first.socket().closed() => closed,
                closed = last.socket().closed() => closed,
            };
            assert_eq!(closed.0, Some(1001));
        }
        node.signal("INT");
        assert_eq!(node.ended_within(AT_ONCE).await.code(), Some(0), "{role}");
        if role == "connection" {
            for agent in [first, last] {
                assert_eq!(node_of(&cluster, agent.uaid()).await, None);
            }
        }
    }
}

#[actix_web::test]
async fn an_agent_that_does_not_read_delays_a_drain_for_at_most_drain_s() {
    let mut cluster = draining_cluster(2);
    let mut agent = Agent::new(&cluster.connection_nodes[0]).await;
    agent.block_server().await;
    cluster.connection_nodes[0].signal("TERM");
    let ended = cluster.connection_nodes[0].ended_within(AT_ONCE).await;
    assert_eq!(ended.code(), Some(0));
}
