//! Nodes that are killed.

use std::cell::Cell;

use awc::error::SendRequestError;
use futures_util::future::join_all;

use crate::harness::{AT_ONCE, Agent, Cluster, Neighbour, Plan, Sender, until};

#[actix_web::test]
async fn when_a_connection_node_is_killed_pushes_are_taken_and_found_elsewhere() {
    let mut cluster = Cluster::start(2, 2);
    let mut agent = Agent::new(&cluster.connects[0]).await;
    let (channel, uaid) = (agent.register().await, agent.uaid().to_owned());
    let mut neighbour = Neighbour::beside(&cluster.connects[1]).await;
    let sender = Sender::new();
    sender.push_to(&mut agent, &channel, "while it lives").await;
    cluster.connects[0].kill();
    for number in 0..5 {
        sender.push(&cluster.endpoint(number % 2, &channel), &number.to_string()).await;
        neighbour.notices_nothing().await;
    }
    let mut agent = Agent::back(&cluster.connects[1], &uaid).await;
    let got = agent.take(5).await;
    assert!(got.iter().map(|got| got.body()).eq(["0", "1", "2", "3", "4"]));
    sender.push_to(&mut agent, &channel, "directly again").await;
}

/// What a node was not told while it was away it is told when it is back.
#[actix_web::test]
async fn an_agent_that_comes_back_to_a_node_that_was_killed_gets_everything() {
    let mut cluster = Cluster::start(1, 1);
    let mut agent = Agent::new(&cluster.connects[0]).await;
    let (channel, uaid) = (agent.register().await, agent.uaid().to_owned());
    cluster.connects[0].kill();
    let sender = Sender::new();
    sender.push(&channel.endpoint, "while nobody is there").await;
    cluster.connects[0].restart();
    let mut agent = Agent::back(&cluster.connects[0], &uaid).await;
    assert_eq!(agent.take(1).await[0].body(), "while nobody is there");
    // The endpoint node leaves the node alone for a moment, and has the agent look when it is over.
    sender.push_to(&mut agent, &channel, "soon after").await;
}

#[actix_web::test]
async fn an_endpoint_node_that_is_killed_loses_nothing_that_it_answered() {
    let mut cluster = Cluster::start(1, 2);
    let (uaid, channel) = Agent::absent(&cluster.connects[0]).await;
    let sender = Sender::new();
    sender.push(&cluster.endpoint(1, &channel), "before").await;
    cluster.endpoints[1].kill();
    sender.push(&cluster.endpoint(0, &channel), "meanwhile").await;
    cluster.endpoints[1].restart();
    sender.push(&cluster.endpoint(1, &channel), "after").await;
    let got = Agent::back(&cluster.connects[0], &uaid).await.take(3).await;
    assert!(got.iter().map(|got| got.body()).eq(["before", "meanwhile", "after"]));
}

#[actix_web::test]
async fn an_endpoint_node_that_is_terminated_serves_on_until_load_balancers_have_noticed() {
    let plan = Plan::of(1, 1).endpoints_with(&["--drain-lame-duck-s=1"]);
    let mut cluster = Cluster::launch(plan);
    let mut agent = Agent::new(&cluster.connects[0]).await;
    let channel = agent.register().await;
    let sender = Sender::new();
    let endpoint = &cluster.endpoints[0];
    endpoint.signal("TERM");
    let beat = format!("{}/__lbheartbeat__", endpoint.origin());
    until(AT_ONCE, "it says that it drains", async || sender.get(&beat).await.status == 503).await;
    assert_eq!(sender.get(&beat).await.body, br#"{"status":"draining"}"#);
    sender.push_to(&mut agent, &channel, "a last one").await;
    assert_eq!(cluster.endpoints[0].ended_within(AT_ONCE).await.code(), Some(0));

    cluster.endpoints[0].restart();
    sender.push_to(&mut agent, &channel, "a first one").await;
}

/// Senders keep their connections, as proxies do, and turn to another node when one refuses a new connection.
#[actix_web::test]
async fn an_endpoint_node_that_ends_under_load_answers_every_push_that_it_took() {
    const SENDERS: usize = 16;
    let mut cluster = Cluster::launch(Plan::of(1, 2).endpoints_with(&["--drain-lame-duck-s=1"]));
    let (uaid, channel) = Agent::absent(&cluster.connects[0]).await;
    let endpoint = cluster.endpoint(1, &channel);
    let taken = Cell::new(0);
    let senders = join_all((0..SENDERS).map(|_| push_until_refused(&endpoint, &taken)));
    tokio::join!(senders, async {
        until(AT_ONCE, "it is under load", async || taken.get() >= SENDERS * 5).await;
        cluster.endpoints[1].signal("TERM");
    });
    // As long as it says that it drains, and not as long as what is under way may take.
    assert_eq!(cluster.endpoints[1].ended_within(AT_ONCE).await.code(), Some(0));
    let mut agent = Agent::back(&cluster.connects[0], &uaid).await;
    agent.take(taken.get()).await;
}

/// Pushes and counts what is answered 201, until a connection is refused. There is no third way.
async fn push_until_refused(endpoint: &str, taken: &Cell<usize>) {
    let sender = Sender::new();
    loop {
        match sender.post(endpoint).ttl(3600).body("under load").try_send().await {
            Ok(answer) => assert_eq!(answer.status, 201, "{answer}"),
            Err(SendRequestError::Connect(_)) => return,
            Err(error) => panic!("a push was taken and not answered: {error}"),
        }
        taken.set(taken.get() + 1);
    }
}
