//! What each role answers, and what it does not.

use serde_json::Value;

use crate::harness::{Agent, Cluster, Fault, Rule, Sender, Server};

async fn health(server: &Server, path: &str) -> (u16, Value) {
    let answer = Sender::new().get(&format!("{}{path}", server.origin())).await;
    (answer.status, serde_json::from_slice(&answer.body).expect("health is JSON"))
}

#[actix_web::test]
async fn every_node_says_that_it_is_healthy_and_a_connection_node_how_many_are_connected() {
    let cluster = Cluster::start(1, 1);
    let _agent = Agent::new(&cluster.connects[0]).await;
    for node in [&cluster.connects[0], &cluster.endpoints[0]] {
        for path in ["/health", "/__heartbeat__", "/__lbheartbeat__", "/__version__", "/status"] {
            let (status, json) = health(node, path).await;
            assert_eq!((status, &json["status"]), (200, &"OK".into()), "{path}");
        }
    }
    assert_eq!(health(&cluster.connects[0], "/health").await.1["connections"], 1);
    assert_eq!(health(&cluster.endpoints[0], "/health").await.1.get("connections"), None);
}

#[actix_web::test]
async fn no_node_is_healthy_without_its_store_and_each_is_there() {
    let cluster = Cluster::start(1, 1);
    cluster.proxy.rule(Rule::on("", Fault::CutBefore));
    for node in [&cluster.connects[0], &cluster.endpoints[0]] {
        assert_eq!(health(node, "/health").await.0, 503);
        assert_eq!(health(node, "/__lbheartbeat__").await.0, 200);
    }
}

#[actix_web::test]
async fn a_role_has_its_own_paths_and_no_others() {
    let cluster = Cluster::start(1, 1);
    let (connect, endpoint) = (&cluster.connects[0], &cluster.endpoints[0]);
    let (_, channel) = Agent::absent(connect).await;
    let sender = Sender::new();
    let path = channel.path(endpoint);
    let push = sender.post(&format!("{}{path}", connect.origin())).ttl(60).body("x");
    push.send().await.refused(404, 102);
    for path in ["/m/x", "/v1/feeds/f", "/push/x", "/notif/x"] {
        sender.get(&format!("{}{path}", connect.origin())).await.refused(404, 102);
    }
    assert_eq!(sender.get(&format!("{}/", connect.origin())).await.status, 426);
    sender.get(&format!("{}/", endpoint.origin())).await.refused(404, 102);
    // What is not signed is not answered on the router port, whatever it is.
    let router = sender.get(&format!("{}/health", connect.router_url())).await;
    assert!((400..500).contains(&router.status), "{router}");
}
