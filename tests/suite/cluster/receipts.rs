//! Receipts whose ack reaches another node than the push.

use crate::harness::{Agent, Cluster, ClusterPlan, Sender};
use crate::receipts::{Receipts, Sent, acked, send};

#[actix_web::test]
async fn an_ack_at_a_connection_node_is_read_at_any_endpoint_node() {
    let cluster = Cluster::launch(ClusterPlan::of(2, 2).with(&["--feed-poll-ms=200"]));
    let mut agent = Agent::new(&cluster.connection_nodes[0]).await;
    let channel = agent.register().await;
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
