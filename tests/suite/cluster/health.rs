//! The paths that each role serves.

use serde_json::Value;

use crate::harness::{Agent, Cluster, Fault, Rule, Sender, Server};

async fn health(server: &Server, path: &str) -> (u16, Value) {
    let answer = Sender::new().get(&format!("{}{path}", server.origin())).await;
    (answer.status, answer.json())
}

#[actix_web::test]
async fn health_reports_the_status_and_on_connection_nodes_the_connections() {
    let cluster = Cluster::start(1, 1);
    let _agent = Agent::new(&cluster.connection_nodes[0]).await;
    for node in [&cluster.connection_nodes[0], &cluster.endpoint_nodes[0]] {
        for path in ["/health", "/__heartbeat__", "/__lbheartbeat__", "/__version__", "/status"] {
            let (status, json) = health(node, path).await;
            assert_eq!((status, &json["status"]), (200, &"OK".into()), "{path}");
        }
    }
    assert_eq!(health(&cluster.connection_nodes[0], "/health").await.1["connections"], 1);
    assert_eq!(health(&cluster.endpoint_nodes[0], "/health").await.1.get("connections"), None);
}

#[actix_web::test]
async fn nodes_without_their_store_are_unhealthy_but_alive() {
    let cluster = Cluster::start(1, 1);
    cluster.proxy.rule(Rule::on("", Fault::CutBefore));
    for node in [&cluster.connection_nodes[0], &cluster.endpoint_nodes[0]] {
        assert_eq!(health(node, "/health").await.0, 503);
        assert_eq!(health(node, "/__lbheartbeat__").await.0, 200);
    }
}

#[actix_web::test]
async fn a_role_has_its_own_paths_and_no_others() {
    let cluster = Cluster::start(1, 1);
    let (connect, endpoint) = (&cluster.connection_nodes[0], &cluster.endpoint_nodes[0]);
    let (_, channel) = Agent::offline(connect).await;
    let sender = Sender::new();
    let path = channel.path(endpoint);
    let push = sender.post(&format!("{}{path}", connect.origin())).ttl(60).body("x");
    push.send().await.assert_error(404, 117);
    for path in ["/m/x", "/v1/feeds/f", "/push/x", "/notif/x"] {
        sender.get(&format!("{}{path}", connect.origin())).await.assert_error(404, 117);
    }
    assert_eq!(sender.get(&format!("{}/", connect.origin())).await.status, 426);
    sender.get(&format!("{}/", endpoint.origin())).await.assert_error(404, 117);
    // The router port rejects every request without a signature.
    let router = sender.get(&format!("{}/health", connect.router_url())).await;
    assert!((400..500).contains(&router.status), "{router}");
}
