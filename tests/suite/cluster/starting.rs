//! Nodes that start at the same time.

use std::thread;

use crate::harness::{Agent, Cluster, Role, Sender, Server};

/// Each node finds tables that another one is creating.
#[actix_web::test]
async fn nodes_that_start_concurrently_without_tables_all_start() {
    let mut cluster = Cluster::start(0, 0);
    let roles =
        [Role::Endpoint, Role::Connection, Role::Endpoint, Role::Connection, Role::Connection];
    let launches = roles.map(|role| cluster.launch_of(role).with(&["--public-url=http://a.test"]));
    let nodes: Vec<Server> = thread::scope(|scope| {
        let starting = launches.map(|launch| scope.spawn(|| Server::launch(launch)));
        starting.map(|node| node.join().expect("a node starts")).into()
    });
    let (mut endpoints, mut connection_nodes) = (Vec::new(), Vec::new());
    for (node, role) in nodes.into_iter().zip(roles) {
        if role == Role::Endpoint { endpoints.push(node) } else { connection_nodes.push(node) }
    }
    (cluster.endpoint_nodes, cluster.connection_nodes) = (endpoints, connection_nodes);
    let (mut agent, channel) = Agent::subscribed(&cluster.connection_nodes[2]).await;
    let path = channel.endpoint.strip_prefix("http://a.test").expect("endpoints begin with it");
    let endpoint = format!("{}{path}", cluster.endpoint_nodes[1].origin());
    Sender::new().push(&endpoint, "to all").await;
    assert_eq!(agent.take(1).await[0].body(), "to all");
}
