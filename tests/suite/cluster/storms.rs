//! Many agents that connect at the same time.

use std::time::Instant;

use futures_util::future::join_all;
use tokio_tungstenite::tungstenite::Error;

use crate::harness::{AT_ONCE, Agent, Cluster, Sender, Server, Socket, until};

/// The number of agents that a node accepts per second.
const LIMIT: usize = 20;

/// The number of agents that connect.
const AGENTS: usize = 60;

#[actix_web::test]
async fn a_connect_storm_is_accepted_at_the_configured_rate() {
    let mut cluster = Cluster::start(2, 1);
    let mut launch = cluster.launch_of(crate::harness::Role::Connection);
    launch = launch.with(&[format!("--connects-per-second-max={LIMIT}")]);
    assert!(cluster.connection_nodes[1].terminate().success());
    cluster.connection_nodes[1].restart_as(launch);
    let uaids: Vec<_> =
        join_all((0..AGENTS).map(async |_| Agent::offline(&cluster.connection_nodes[0]).await.0))
            .await;
    cluster.proxy.wait_until_idle().await;

    let (began, node) = (Instant::now(), &cluster.connection_nodes[1]);
    let storm = join_all(uaids.iter().map(|uaid| connect_until_accepted(node, uaid)));
    let watch = async {
        until(AT_ONCE, "all have a record here", async || {
            let registered = cluster.proxy.usage().count(&["UpdateItem"]);
            let allowed = LIMIT as f64 * (1.0 + began.elapsed().as_secs_f64());
            assert!(registered as f64 <= allowed, "{registered} of {allowed}");
            registered >= AGENTS
        })
        .await;
    };
    let (agents, ()) = tokio::join!(storm, watch);
    let refused: usize = agents.iter().map(|(_, refused)| refused).sum();
    assert!(refused > 0, "no agent was rejected");
    assert_eq!(node.connections().await, AGENTS as u64);
    let (took, logged) = (began.elapsed(), node.log());
    let lines = logged.matches("user agents are refused, more connect than").count();
    assert!((1..=took.as_secs() as usize + 2).contains(&lines), "{lines} lines in {took:?}");
}

/// Connects an agent until it is accepted, and returns it with the number of rejections: before the upgrade, or at the
/// hello if many others have opened a WebSocket at the same time.
async fn connect_until_accepted(node: &Server, uaid: &str) -> (Agent, usize) {
    let (mut refused, mut agent) = (0, None);
    until(AT_ONCE, "the agent is let in", async || {
        match Socket::try_open(node).await {
            Ok(socket) => agent = Agent::hello(socket, Some(uaid)).await.ok(),
            Err(Error::Http(response)) => {
                assert_eq!(response.status().as_u16(), 503);
                assert!(response.headers().contains_key("retry-after"));
            }
            Err(error) => panic!("{error}"),
        }
        refused += usize::from(agent.is_none());
        agent.is_some()
    })
    .await;
    (agent.expect("it was let in"), refused)
}

#[actix_web::test]
async fn a_rejected_connection_gets_the_reason_and_retry_after() {
    let (server, _first) = Server::with_agent(&["--connects-per-second-max=1"]).await;
    let sender = Sender::new();
    let mut answer = None;
    // The machine may be so slow that a second agent is within the limit.
    until(AT_ONCE, "one is refused", async || {
        let upgrade = sender.request(hyper::Method::GET, &format!("{}/", server.origin()));
        let upgrade = upgrade.header("upgrade", "websocket").header("connection", "upgrade");
        answer = upgrade.try_send().await.ok().filter(|answer| answer.status == 503);
        answer.is_some()
    })
    .await;
    let answer = answer.expect("waited for");
    assert!(answer.assert_error(503, 201).contains("try again later"), "{answer}");
    assert_eq!(answer.header("retry-after"), Some("5"));
}
