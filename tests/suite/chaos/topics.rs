//! What chaos found: a restarted endpoint node made ids that were minutes ahead of the others'.

use crate::harness::{Agent, Cluster, Sender};

/// A topic's message is replaced by one with a greater id only. Ids that go on after those of the process before,
/// whatever the clock says, are right for one node and wrong among several.
#[actix_web::test]
async fn a_topic_is_replaced_through_another_endpoint_node_after_one_was_killed() {
    let mut cluster = Cluster::start(1, 2);
    let (uaid, channel) = Agent::absent(&cluster.connects[0]).await;
    cluster.endpoints[0].kill();
    cluster.endpoints[0].restart();

    let sender = Sender::new();
    sender.push_topic(&cluster.endpoint(0, &channel), "news", "old").await;
    sender.push_topic(&cluster.endpoint(1, &channel), "news", "new").await;

    let mut agent = Agent::back(&cluster.connects[0], &uaid).await;
    assert_eq!(agent.notification().await.body(), "new");
    assert_eq!(agent.notifications_so_far().await, []);
}
