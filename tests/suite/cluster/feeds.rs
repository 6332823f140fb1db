//! Feeds and broadcasts with writers and subscribers on different nodes.

use serde_json::json;

use crate::feeds::FeedClient;
use crate::harness::{AT_ONCE, Agent, Cluster, ClusterPlan, within};

#[actix_web::test]
async fn a_broadcast_set_on_an_endpoint_node_reaches_an_agent_on_a_connection_node() {
    let quick = ["--feed-poll-ms=50", "--broadcast-fanout-ms=0"];
    let cluster = Cluster::launch(ClusterPlan::of(1, 1).with(&quick));
    let client = FeedClient::at(&cluster.endpoint_nodes[0], "broadcasts");
    client.put("settings", "1").await;
    let mut agent = Agent::new(&cluster.connection_nodes[0]).await;
    let subscribe = json!({"messageType": "broadcast_subscribe", "broadcasts": {"settings": "0"}});
    let socket = agent.socket();
    socket.send_json(&subscribe).await;
    for (version, next) in [("1", "2"), ("2", "3")] {
        let broadcast = async {
            loop {
                let message = socket.receive().await.expect("the server is there");
                assert_eq!(message["messageType"], "broadcast", "{message}");
                if message["broadcasts"]["settings"] == version {
                    return;
                }
            }
        };
        within(AT_ONCE, "the agent receives the broadcast", broadcast).await;
        client.put("settings", next).await;
    }
}

#[actix_web::test]
async fn a_feed_written_on_one_endpoint_node_is_followed_on_another() {
    let cluster = Cluster::launch(ClusterPlan::of(0, 2).with(&["--feed-poll-ms=50"]));
    let (writer, reader) = (
        FeedClient::at(&cluster.endpoint_nodes[0], "news"),
        FeedClient::at(&cluster.endpoint_nodes[1], "news"),
    );
    writer.put("a", "1").await;
    let mut events = reader.events(0).await;
    let event = events.next().await.expect("the stream is open");
    assert_eq!(event.update.expect("a is new").value.as_deref(), Some("1"));
}
