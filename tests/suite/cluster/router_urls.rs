//! Router URLs at which the node itself is not reachable.

use tempfile::TempDir;
use tokio::net::TcpStream;

use super::node_of;
use crate::harness::{
    AT_ONCE, Agent, Cluster, ClusterPlan, ExitOutput, Launch, Program, Role, Sender, Server,
    kalends, put_keys, until,
};
use crate::metrics::scrape;

/// An address on which no process listens.
const NOWHERE: &str = "http://127.0.0.1:1";

/// Starts a connection node that must end by itself.
async fn ends(launch: Launch) -> ExitOutput {
    let home = TempDir::new().expect("a temporary directory can be made");
    put_keys(home.path(), &launch.keys.expect("a cluster has keys"));
    let mut command = kalends(&["serve", "--role=connection"]);
    command.args(["--listen=127.0.0.1:0", "--router-listen=127.0.0.1:0"]);
    command.arg("--data-dir").arg(home.path()).args(launch.arguments).envs(launch.variables);
    Program::run(command).await
}

#[actix_web::test]
async fn a_full_router_port_is_logged_with_its_setting() {
    let plan = ClusterPlan::of(1, 1);
    let cluster = Cluster::launch(
        plan.with_connection_arguments(&["--router-connections-max=1", "--workers=1"]),
    );
    let node = &cluster.connection_nodes[0];
    let router = node.router_url().replace("http://", "");
    let _peer = TcpStream::connect(router).await.unwrap();
    until(AT_ONCE, "the port is full", async || {
        let log = node.log();
        let line = log.lines().find(|line| line.contains("the router port is full"));
        line.is_some_and(|line| line.contains("\"router_connections_max\":1"))
    })
    .await;
    assert!(scrape(node).await["kalends_router_port_full_total"] > 0.0);
}

#[actix_web::test]
async fn a_node_with_the_router_url_of_another_ends_and_the_other_runs_on() {
    let cluster = Cluster::start(1, 1);
    let (mut agent, channel) = Agent::subscribed(&cluster.connection_nodes[0]).await;
    let taken = cluster.connection_nodes[0].router_url();
    let launch = cluster.launch_of(Role::Connection).with(&[format!("--router-url={taken}")]);
    let ended = ends(launch).await;
    ended.refused_start(1, &[&format!("another node answers at router_url {taken}")]);
    Sender::new().push_to(&mut agent, &channel, "directly").await;
    assert_eq!(node_of(&cluster, agent.uaid()).await, Some(taken));
}

#[actix_web::test]
async fn a_node_with_an_unreachable_router_url_logs_it_and_serves_its_agents() {
    let cluster = Cluster::start(0, 1);
    let launch = cluster.launch_of(Role::Connection);
    let node = Server::launch(launch.with(&[format!("--router-url={NOWHERE}")]));
    let expected =
        "this node does not reach its own router_url, other nodes may not reach it either";
    node.logged(expected).await;
    let mut agent = Agent::new(&node).await;
    let (channel, uaid) = (agent.register().await, agent.uaid().to_owned());
    assert_eq!(node_of(&cluster, &uaid).await.as_deref(), Some(NOWHERE));
    Sender::new().push(&channel.endpoint, "stored").await;
    agent.leave().await;
    assert_eq!(Agent::reconnect(&node, &uaid).await.take(1).await[0].body(), "stored");
}
