//! A regression: a restarted endpoint node generated ids that were minutes ahead of those of the
//! other nodes.

use crate::harness::{Agent, Cluster, Sender};

/// A stored message with a topic is replaced only by one with a greater id. Ids that continue those
/// of the previous process, ahead of the clock, are correct for one node but not for several.
#[actix_web::test]
async fn a_topic_is_replaced_through_another_endpoint_node_after_a_restart() {
    let mut cluster = Cluster::start(1, 2);
    let (uaid, channel) = Agent::offline(&cluster.connection_nodes[0]).await;
    cluster.endpoint_nodes[0].crash();

    let sender = Sender::new();
    sender.push_topic(&cluster.endpoint(0, &channel), "news", "old").await;
    sender.push_topic(&cluster.endpoint(1, &channel), "news", "new").await;

    let mut agent = Agent::reconnect(&cluster.connection_nodes[0], &uaid).await;
    assert_eq!(agent.notification().await.body(), "new");
    assert_eq!(agent.pending_notifications().await, []);
}
