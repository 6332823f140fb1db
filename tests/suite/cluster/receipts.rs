//! Receipts whose ack reaches another node than the push, and their cost.

use std::collections::BTreeMap;

use crate::harness::{AT_ONCE, Agent, Cluster, ClusterPlan, Sender, until};
use crate::receipts::{Receipts, Sent, acked, send};

#[actix_web::test]
async fn an_ack_at_a_connection_node_is_read_at_any_endpoint_node() {
    let cluster = Cluster::launch(ClusterPlan::of(2, 2).with(&["--feed-poll-ms=200"]));
    let (mut agent, channel) = Agent::subscribed(&cluster.connection_nodes[0]).await;
    let first = send(&channel, "0", None).await;
    let elsewhere = first
        .receipts
        .replace(&cluster.endpoint_nodes[0].origin(), &cluster.endpoint_nodes[1].origin());
    let mut events = Receipts::at(&elsewhere).events().await;
    let got = agent.notification().await;
    acked(&mut agent, &got, 101).await;
    let receipt = events.next().await;
    assert_eq!(receipt.state(), (&*first.location, "delivered", Some(101)));

    // Sent through the other endpoint node, and acked at the other connection node.
    let uaid = agent.leave().await;
    let sender = Sender::new();
    let post =
        sender.post(&cluster.endpoint(1, &channel)).ttl(60).header("prefer", "respond-async");
    let link = format!("<{}>; rel=\"urn:ietf:params:push:receipt\"", first.receipts);
    let second = Sent::of(&post.header("link", &link).body("1").send().await);
    let mut agent = Agent::reconnect(&cluster.connection_nodes[1], &uaid).await;
    let got = agent.notification().await;
    acked(&mut agent, &got, 102).await;
    let receipt = events.next().await;
    assert_eq!(receipt.state(), (&*second.location, "delivered", Some(102)));
    let mut receipts = Receipts::at(&first.receipts);
    assert_eq!(receipts.there_are().await.len(), 2);
}

#[actix_web::test]
async fn a_push_with_a_receipt_costs_one_read_and_one_transaction_more() {
    let cluster = Cluster::launch(ClusterPlan::of(1, 1));
    let (uaid, channel) = Agent::offline(&cluster.connection_nodes[0]).await;
    let sender = Sender::new();
    // The first push finds that the agent is gone.
    sender.push(&channel.endpoint, "found out").await;
    let first = send(&channel, "first", None).await;
    cluster.proxy.wait_until_idle().await;
    cluster.proxy.take_usage();
    sender.push(&channel.endpoint, "plain").await;
    let stored = [("GetItem", 3), ("PutItem", 1), ("UpdateItem", 1)];
    let usage = cluster.proxy.take_usage();
    assert_eq!(usage.billed(), BTreeMap::from(stored), "{usage}");
    println!("a push without a receipt: {usage}");
    send(&channel, "wanting", Some(&first.receipts)).await;
    let more = [("GetItem", 4), ("PutItem", 1), ("TransactWriteItems", 1), ("UpdateItem", 1)];
    let usage = cluster.proxy.take_usage();
    assert_eq!(usage.billed(), BTreeMap::from(more), "{usage}");
    println!("a push with a receipt: {usage}");

    let mut agent = Agent::reconnect(&cluster.connection_nodes[0], &uaid).await;
    agent.take(4).await;
    let mut receipts = Receipts::at(&first.receipts);
    until(AT_ONCE, "both are published", async || {
        receipts.there_are().await;
        receipts.cursor == 2
    })
    .await;
}
