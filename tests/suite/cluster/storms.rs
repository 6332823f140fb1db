//! All agents come at once.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio_tungstenite::tungstenite::Error;

use crate::harness::{AT_ONCE, Agent, Cluster, Sender, Server, Socket, until};

/// Agents a second that a node lets in.
const LIMIT: usize = 100;

/// Agents that come.
const AGENTS: usize = 300;

#[actix_web::test]
async fn agents_that_all_come_at_once_are_let_in_at_the_pace_that_storage_can_keep() {
    let mut cluster = Cluster::start(2, 1);
    let mut launch = cluster.launch_of(crate::harness::Role::Connect);
    launch = launch.with(&[format!("--connects-per-second-max={LIMIT}")]);
    assert!(cluster.connects[1].terminate().success());
    cluster.connects[1].restart_as(launch);
    let uaids: Vec<_> =
        join_all((0..AGENTS).map(async |_| Agent::absent(&cluster.connects[0]).await.0)).await;
    cluster.proxy.comes_to_rest().await;

    let (began, node) = (Instant::now(), &cluster.connects[1]);
    let storm = join_all(uaids.iter().map(|uaid| insists(node, uaid)));
    let watch = async {
        until(AT_ONCE * 2, "all have a record here", async || {
            let registered = cluster.proxy.bill_so_far().count(&["UpdateItem"]);
            let allowed = LIMIT as f64 * (1.0 + began.elapsed().as_secs_f64());
            assert!(registered as f64 <= allowed, "{registered} of {allowed}");
            registered >= AGENTS
        })
        .await;
    };
    let (agents, ()) = tokio::join!(storm, watch);
    let refused: usize = agents.iter().map(|(_, refused)| refused).sum();
    assert!(refused > 0, "nobody was refused");
    assert_eq!(node.connections().await, AGENTS as u64);
    let (took, logged) = (began.elapsed(), node.log());
    let lines = logged.matches("may connect in a second").count();
    assert!((1..=took.as_secs() as usize + 2).contains(&lines), "{lines} lines in {took:?}");
}

/// An agent that comes again and again until it is let in, and how often it was not.
async fn insists(node: &Server, uaid: &str) -> (Agent, usize) {
    let (mut refused, mut open) = (0, None);
    until(AT_ONCE * 2, "the agent is let in", async || {
        match Socket::try_open(node).await {
            Ok(socket) => open = Some(socket),
            Err(Error::Http(response)) => {
                assert_eq!(response.status().as_u16(), 503);
                assert!(response.headers().contains_key("retry-after"));
                refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
        open.is_some()
    })
    .await;
    let agent = Agent::greet(open.expect("it was let in"), Some(uaid)).await;
    (agent.expect("the server says hello"), refused)
}

#[actix_web::test]
async fn who_is_refused_is_told_why_and_when_to_come_back() {
    let server = Server::start_with(&["--connects-per-second-max=1"]);
    let _first = Agent::new(&server).await;
    let sender = Sender::new();
    let mut answer = None;
    // The machine may be slow enough for a second agent to be in time.
    until(Duration::from_secs(5), "one is refused", async || {
        let upgrade = sender.request(awc::http::Method::GET, &format!("{}/", server.origin()));
        let upgrade = upgrade.header("upgrade", "websocket").header("connection", "upgrade");
        answer = upgrade.try_send().await.ok().filter(|answer| answer.status == 503);
        answer.is_some()
    })
    .await;
    let answer = answer.expect("waited for");
    assert!(answer.refused(503, 201).contains("try again later"), "{answer}");
    assert_eq!(answer.header("retry-after"), Some("5"));
}
