//! Feeds and broadcasts where those who write them and those who are told are on different nodes.

use serde_json::json;

use crate::feeds::Desk;
use crate::harness::{AT_ONCE, Agent, Cluster, Plan, within};

#[actix_web::test]
async fn a_broadcast_that_an_endpoint_node_takes_reaches_an_agent_on_a_connection_node() {
    let quick = ["--feed-poll-ms=50", "--broadcast-fanout-ms=0"];
    let cluster = Cluster::launch(Plan::of(1, 1).with(&quick));
    let desk = Desk::at(&cluster.endpoints[0], "broadcasts");
    desk.put("settings", "1").await;
    let mut agent = Agent::new(&cluster.connects[0]).await;
    let subscribe = json!({"messageType": "broadcast_subscribe", "broadcasts": {"settings": "0"}});
    let socket = agent.socket();
    socket.say(&subscribe).await;
    for (version, next) in [("1", "2"), ("2", "3")] {
        let told = async {
            loop {
                let heard = socket.hear().await.expect("the server is there");
                assert_eq!(heard["messageType"], "broadcast", "{heard}");
                if heard["broadcasts"]["settings"] == version {
                    return;
                }
            }
        };
        within(AT_ONCE, "the agent is told", told).await;
        desk.put("settings", next).await;
    }
}

#[actix_web::test]
async fn a_feed_that_is_written_on_one_endpoint_node_is_followed_on_another() {
    let cluster = Cluster::launch(Plan::of(0, 2).with(&["--feed-poll-ms=50"]));
    let (writer, reader) =
        (Desk::at(&cluster.endpoints[0], "news"), Desk::at(&cluster.endpoints[1], "news"));
    writer.put("a", "1").await;
    let mut events = reader.events(0).await;
    let event = events.next().await.expect("the stream goes on");
    assert_eq!(event.update.expect("a is new").value.as_deref(), Some("1"));
}
