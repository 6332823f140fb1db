//! The outcomes of a push to another node.

use std::net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::sync::{Arc, OnceLock};

use actors::NodeDirectory;
use futures_util::FutureExt;
use socket2::{Domain, Socket, Type};
use state_machine::delivery::NodeAnswer;
use state_machine::{Encoding, Message, NodeId, Payload, Span};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::node::{Act, Asked, Seen, signed};
use super::world::{AGENT, SHORT, World, limits, soon};
use crate::cluster::fixture::{OTHER_KEY, cluster_keys, message};
use crate::cluster::outbound::RemoteLimits;
use crate::cluster::signature::ClusterKeys;
use crate::cluster::wire_message;
use crate::settings::value::Value;

#[tokio::test]
async fn each_signed_status_has_its_meaning() {
    let world = World::new(limits());
    let mut node = world.node(200).await;
    for (status, answer) in [
        (200, NodeAnswer::Accepted),
        (202, NodeAnswer::Unconfirmed),
        (404, NodeAnswer::NotHere),
        (410, NodeAnswer::NoSuchChannel),
        (503, NodeAnswer::Busy),
        (400, NodeAnswer::Unreachable),
        (401, NodeAnswer::Unreachable),
        (500, NodeAnswer::Unreachable),
        (200, NodeAnswer::Accepted),
    ] {
        node.set(world.answers(status));
        assert_eq!(world.pushed(&node.id).await, answer, "{status}");
        let expected =
            Asked { line: format!("PUT /push/{AGENT}"), body: wire_message::to_bytes(&message()) };
        assert_eq!(node.asked().await, expected);
    }
}

#[tokio::test]
async fn a_message_larger_than_the_buffer_is_sent_whole() {
    let world = World::new(limits());
    let mut node = world.node(200).await;
    let payload = Payload { data: vec![7; 1 << 20].into(), encoding: Encoding::Aes128Gcm };
    let message = Message { payload: Some(payload), ..message() };
    let answer = world.nodes.deliver(&node.id, AGENT, message.clone()).await;
    assert_eq!(answer, Ok(NodeAnswer::Accepted));
    assert_eq!(node.asked().await.body, wire_message::to_bytes(&message));
}

#[tokio::test]
async fn a_refused_connection_opens_the_breaker() {
    let mut world = World::new(limits());
    let gone = StdListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let node = NodeId::new(&format!("http://{gone}"));
    assert_eq!(world.pushed(&node).await, NodeAnswer::Unreachable);
    assert_eq!(world.refused(&node), NodeAnswer::Unreachable);
    assert_eq!(world.log.said(), ["WARN a node is unreachable, its messages are stored"]);
}

#[tokio::test]
async fn a_connection_that_is_not_accepted_times_out() {
    let world = World::new(RemoteLimits { connect_timeout: SHORT, ..limits() });
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    // The kernel accepts connections up to its backlog and ignores further ones.
    let held: Vec<StdStream> =
        std::iter::from_fn(|| StdStream::connect_timeout(&address, SHORT).ok()).collect();
    assert!(!held.is_empty() && held.len() < 10);
    let node = NodeId::new(&format!("http://{address}"));
    assert_eq!(world.pushed(&node).await, NodeAnswer::Unreachable);
    assert_eq!(world.refused(&node), NodeAnswer::Unreachable);
}

#[tokio::test]
async fn a_node_that_does_not_answer_times_out() {
    let world = World::new(RemoteLimits { push_wait: SHORT, ..limits() });
    let (_tell, node) = world.holding_node().await;
    assert_eq!(world.pushed(&node.id).await, NodeAnswer::Unreachable);
    assert_eq!(world.refused(&node.id), NodeAnswer::Unreachable);
}

#[tokio::test]
async fn a_node_that_does_not_answer_fails_even_if_the_endpoint_cancels_first() {
    let mut world = World::new(RemoteLimits { hang_after: Span(20), ..limits() });
    let (_tell, node) = world.holding_node().await;
    assert!(timeout(SHORT, world.push(&node.id)).await.is_err());
    world.log.says("a node is unreachable, its messages are stored").await;
    assert_eq!(world.refused(&node.id), NodeAnswer::Unreachable);
}

#[tokio::test]
async fn anything_but_a_signed_answer_to_the_request_is_unreachable() {
    let world = World::new(limits());
    let unsigned =
        |status: u16| Act::write(&format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n"));
    let forged = |status: u16, claimed: u16| {
        let keys = Arc::clone(&world.keys);
        Act::Answer(Arc::new(move |mac| {
            let text = String::from_utf8(signed(&keys, mac, status, "")).unwrap();
            text.replace(&format!(" {status} "), &format!(" {claimed} ")).into_bytes()
        }))
    };
    for (case, act) in [
        ("closed without an answer", Act::AnswerAndClose(Arc::new(|_| Vec::new()))),
        ("reset without an answer", Act::Reset(Vec::new())),
        ("reset in the answer", Act::Reset(b"HTTP/1.1 200 OK\r\nkalends-".to_vec())),
        ("garbage", Act::write("SSH-2.0-OpenSSH_9.9\r\n\r\n")),
        ("unsigned 200", unsigned(200)),
        ("unsigned 401", unsigned(401)),
        ("unsigned 404", unsigned(404)),
        ("unsigned 410", unsigned(410)),
        ("signed for another status", forged(200, 404)),
        ("signed with other keys", by_others(&cluster_keys(OTHER_KEY))),
        ("signed for another request", replayed(&world).await),
    ] {
        let node = world.node_that(act).await;
        assert_eq!(world.pushed(&node.id).await, NodeAnswer::Unreachable, "{case}");
        assert!(world.is_open(&node.id), "{case}");
    }
}

/// Answers with the signature of another cluster.
fn by_others(others: &Arc<ClusterKeys>) -> Act {
    let others = Arc::clone(others);
    Act::Answer(Arc::new(move |mac| signed(&others, mac, 404, "")))
}

/// Repeats the answer to an earlier request.
async fn replayed(world: &World) -> Act {
    let (keys, first) = (Arc::clone(&world.keys), Arc::new(OnceLock::new()));
    let answer = move |mac: &_| first.get_or_init(|| signed(&keys, mac, 404, "")).clone();
    let act = Act::Answer(Arc::new(answer));
    let other = world.node_that(act.clone()).await;
    assert_eq!(world.pushed(&other.id).await, NodeAnswer::NotHere);
    act
}

#[tokio::test]
async fn a_push_without_an_answer_is_not_repeated() {
    let world = World::new(limits());
    let mut node = world.called_node(0).await;
    // On the same connection, on which a request that was not sent would be repeated.
    node.set(Act::AnswerAndClose(Arc::new(|_| Vec::new())));
    assert_eq!(world.pushed(&node.id).await, NodeAnswer::Unreachable);
    assert_eq!(node.requests().len(), 2);
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let world = World::new(limits());
    let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = elsewhere.local_addr().unwrap();
    for status in [301, 307, 308] {
        let keys = Arc::clone(&world.keys);
        let more = format!("location: http://{address}/\r\n");
        let act = Act::Answer(Arc::new(move |mac| signed(&keys, mac, status, &more)));
        let node = world.node_that(act).await;
        assert_eq!(world.pushed(&node.id).await, NodeAnswer::Unreachable);
    }
    assert!(elsewhere.accept().now_or_never().is_none());
}

#[tokio::test]
async fn endless_headers_are_not_read_to_the_end() {
    let world = World::new(limits());
    let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "x".repeat(1 << 20));
    let node = world.node_that(Act::write(&endless)).await;
    assert_eq!(world.pushed(&node.id).await, NodeAnswer::Unreachable);
}

#[tokio::test]
async fn the_body_of_an_answer_is_not_read() {
    let world = World::new(limits());
    let keys = Arc::clone(&world.keys);
    let act = Act::Answer(Arc::new(move |mac| {
        let mut answer = signed(&keys, mac, 200, "content-length: 1000000000000\r\n");
        answer.extend(vec![b'x'; 1 << 20]);
        answer
    }));
    let mut node = world.node_that(act).await;
    assert_eq!(world.pushed(&node.id).await, NodeAnswer::Accepted);
    assert_eq!(node.next().await, Seen::Connected);
    assert!(matches!(node.next().await, Seen::Asked(_)));
    assert_eq!(node.next().await, Seen::HungUp, "the connection is closed");
}

#[tokio::test]
async fn only_allowed_nodes_are_called() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let port = address.port();
    let world = World::allowing(Value::parse("127.0.0.2, node.example").unwrap(), soon());
    let allowing = World::new(soon());
    for (world, name) in [
        (&world, format!("http://{address}")),
        (&world, format!("http://localhost:{port}")),
        (&allowing, "local".to_owned()),
        (&allowing, String::new()),
        (&allowing, format!("{address}")),
        (&allowing, format!("https://{address}")),
        (&allowing, format!("http://{address}/")),
        (&allowing, format!("http://{address}/admin?")),
        (&allowing, format!("http://user@{address}")),
        (&allowing, format!("http://node.example@{address}")),
        (&allowing, format!("http://2130706433:{port}")),
    ] {
        let node = NodeId::new(&name);
        assert_eq!(world.refused(&node), NodeAnswer::Unreachable, "{name}");
        world.nodes.notify_stored(&node, AGENT);
        world.rests().await;
    }
    assert!(listener.accept().now_or_never().is_none());
}
