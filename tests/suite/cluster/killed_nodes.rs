//! Nodes that are killed with SIGKILL.

use std::cell::Cell;

use futures_util::future::join_all;

use crate::harness::{AT_ONCE, Agent, Bystander, Cluster, ClusterPlan, SendError, Sender, until};

#[actix_web::test]
async fn pushes_to_agents_of_a_killed_node_are_stored_and_found_on_another() {
    let mut cluster = Cluster::start(2, 2);
    let mut agent = Agent::new(&cluster.connection_nodes[0]).await;
    let (channel, uaid) = (agent.register().await, agent.uaid().to_owned());
    let mut bystander = Bystander::connect(&cluster.connection_nodes[1]).await;
    let sender = Sender::new();
    sender.push_to(&mut agent, &channel, "while it lives").await;
    cluster.connection_nodes[0].kill();
    for number in 0..5 {
        sender.push(&cluster.endpoint(number % 2, &channel), &number.to_string()).await;
        bystander.is_unaffected().await;
    }
    let mut agent = Agent::reconnect(&cluster.connection_nodes[1], &uaid).await;
    let got = agent.take(5).await;
    assert!(got.iter().map(|got| got.body()).eq(["0", "1", "2", "3", "4"]));
    sender.push_to(&mut agent, &channel, "directly again").await;
}

/// Notifications for a node that was down are sent when it is up again.
#[actix_web::test]
async fn an_agent_that_reconnects_to_a_restarted_node_receives_everything() {
    let mut cluster = Cluster::start(1, 1);
    let mut agent = Agent::new(&cluster.connection_nodes[0]).await;
    let (channel, uaid) = (agent.register().await, agent.uaid().to_owned());
    cluster.connection_nodes[0].kill();
    let sender = Sender::new();
    sender.push(&channel.endpoint, "while the node is down").await;
    cluster.connection_nodes[0].restart();
    let mut agent =
        Agent::returned_to(&cluster.connection_nodes[0], &uaid, "while the node is down").await;
    // The circuit breaker opens for a moment; when it closes, the agent is notified.
    sender.push_to(&mut agent, &channel, "soon after").await;
}

#[actix_web::test]
async fn a_killed_endpoint_node_loses_no_accepted_push() {
    let mut cluster = Cluster::start(1, 2);
    let (uaid, channel) = Agent::offline(&cluster.connection_nodes[0]).await;
    let sender = Sender::new();
    sender.push(&cluster.endpoint(1, &channel), "before").await;
    cluster.endpoint_nodes[1].kill();
    sender.push(&cluster.endpoint(0, &channel), "meanwhile").await;
    cluster.endpoint_nodes[1].restart();
    sender.push(&cluster.endpoint(1, &channel), "after").await;
    let got = Agent::reconnect(&cluster.connection_nodes[0], &uaid).await.take(3).await;
    assert!(got.iter().map(|got| got.body()).eq(["before", "meanwhile", "after"]));
}

#[actix_web::test]
async fn a_terminated_endpoint_node_serves_until_load_balancers_notice() {
    let plan = ClusterPlan::of(1, 1).with_endpoint_arguments(&["--drain-lame-duck-s=1"]);
    let mut cluster = Cluster::launch(plan);
    let (mut agent, channel) = Agent::subscribed(&cluster.connection_nodes[0]).await;
    let sender = Sender::new();
    let endpoint = &cluster.endpoint_nodes[0];
    endpoint.signal("TERM");
    endpoint.drains(AT_ONCE).await;
    sender.push_to(&mut agent, &channel, "a last one").await;
    assert_eq!(cluster.endpoint_nodes[0].ended_within(AT_ONCE).await.code(), Some(0));

    cluster.endpoint_nodes[0].restart();
    sender.push_to(&mut agent, &channel, "a first one").await;
}

/// Senders keep their connections like proxies, and use another node when one refuses a new
/// connection.
#[actix_web::test]
async fn an_endpoint_node_that_ends_under_load_answers_every_push_it_accepted() {
    const SENDERS: usize = 16;
    let mut cluster =
        Cluster::launch(ClusterPlan::of(1, 2).with_endpoint_arguments(&["--drain-lame-duck-s=1"]));
    let (uaid, channel) = Agent::offline(&cluster.connection_nodes[0]).await;
    let endpoint = cluster.endpoint(1, &channel);
    let taken = Cell::new(0);
    let senders = join_all((0..SENDERS).map(|_| push_until_refused(&endpoint, &taken)));
    tokio::join!(senders, async {
        until(AT_ONCE, "it is under load", async || taken.get() >= SENDERS * 5).await;
        cluster.endpoint_nodes[1].signal("TERM");
    });
    // The time in which the node reports that it drains, which is shorter than the timeout of
    // requests.
    assert_eq!(cluster.endpoint_nodes[1].ended_within(AT_ONCE).await.code(), Some(0));
    let mut agent = Agent::reconnect(&cluster.connection_nodes[0], &uaid).await;
    agent.take(taken.get()).await;
}

/// Pushes until a connection is refused, and counts the answers, all of which must be 201.
async fn push_until_refused(endpoint: &str, taken: &Cell<usize>) {
    let sender = Sender::new();
    loop {
        match sender.post(endpoint).ttl(3600).body("under load").try_send().await {
            Ok(answer) => assert_eq!(answer.status, 201, "{answer}"),
            Err(SendError::NoConnection(_)) => return,
            Err(error) => panic!("a push was taken and not answered: {error}"),
        }
        taken.set(taken.get() + 1);
    }
}
