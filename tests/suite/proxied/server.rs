//! One server behind a proxy: whatever user agents, application servers and readers of feeds do.

use std::pin::pin;

use awc::Client;
use futures_util::StreamExt;

use super::{Ahead, Kind};
use crate::feeds::Desk;
use crate::harness::{AT_ONCE, Agent, Sender, Signer, Socket, within};

/// What a node says of itself.
const OF_ITSELF: [&str; 5] =
    ["/health", "/status", "/__heartbeat__", "/__lbheartbeat__", "/__version__"];

#[actix_web::test]
async fn pushes_pass_through_nginx() {
    pushes_pass(&Ahead::start(Kind::Nginx).await).await;
}

#[actix_web::test]
async fn pushes_pass_through_caddy() {
    pushes_pass(&Ahead::start(Kind::Caddy).await).await;
}

async fn pushes_pass(ahead: &Ahead) {
    let Ahead { front, .. } = ahead;
    let (sender, signer) = (Sender::new(), Signer::new());
    let mut agent = front.agent().await;
    let channel = agent.register().await;
    assert!(channel.endpoint.starts_with(&front.origin()), "{}", channel.endpoint);
    sender.push_to(&mut agent, &channel, "open").await;
    let channel = agent.register_for(&signer.key()).await;
    let push = sender.post(&channel.endpoint).ttl(60).signed(&signer, &front.origin());
    let (answer, got) = tokio::join!(push.body("signed").send(), agent.take(1));
    assert_eq!((answer.status, got[0].body()), (201, "signed"));
}

#[actix_web::test]
async fn a_message_that_waits_is_dropped_or_delivered_through_nginx() {
    waiting_messages_are_found(&Ahead::start(Kind::Nginx).await).await;
}

#[actix_web::test]
async fn a_message_that_waits_is_dropped_or_delivered_through_caddy() {
    waiting_messages_are_found(&Ahead::start(Kind::Caddy).await).await;
}

async fn waiting_messages_are_found(ahead: &Ahead) {
    let Ahead { front, .. } = ahead;
    let sender = Sender::new();
    let mut agent = front.agent().await;
    let channel = agent.register().await;
    let uaid = agent.leave().await;
    let dropped = sender.push(&channel.endpoint, "dropped").await.location();
    sender.push(&channel.endpoint, "delivered").await;
    assert!(dropped.starts_with(&front.origin()), "{dropped}");
    assert_eq!(sender.delete(&dropped).await.status, 204);
    let socket = Socket::open_ever(front.address()).await.expect("the proxy lets it in");
    let mut agent = Agent::greet(socket, Some(&uaid)).await.expect("the server says hello");
    assert_eq!(agent.uaid(), uaid);
    assert_eq!(agent.take(1).await[0].body(), "delivered");
}

#[actix_web::test]
async fn what_is_too_large_is_refused_by_kalends_itself_behind_nginx() {
    large_pushes_are_refused(&Ahead::start(Kind::Nginx).await).await;
}

#[actix_web::test]
async fn what_is_too_large_is_refused_by_kalends_itself_behind_caddy() {
    large_pushes_are_refused(&Ahead::start(Kind::Caddy).await).await;
}

async fn large_pushes_are_refused(ahead: &Ahead) {
    const LARGEST: usize = 4096;
    let mut agent = ahead.front.agent().await;
    let channel = agent.register().await;
    let sender = Sender::new();
    for bytes in [LARGEST + 1, 400_000] {
        let push = sender.post(&channel.endpoint).ttl(60).body("x".repeat(bytes));
        let said = push.send().await.refused(413, 104);
        assert!(said.contains(&LARGEST.to_string()), "{said}");
    }
    sender.push_to(&mut agent, &channel, &"x".repeat(LARGEST)).await;
}

#[actix_web::test]
async fn an_update_of_a_feed_comes_through_nginx_while_the_stream_goes_on() {
    events_come_at_once(&Ahead::start(Kind::Nginx).await).await;
}

#[actix_web::test]
async fn an_update_of_a_feed_comes_through_caddy_while_the_stream_goes_on() {
    events_come_at_once(&Ahead::start(Kind::Caddy).await).await;
}

async fn events_come_at_once(ahead: &Ahead) {
    let Ahead { front, server } = ahead;
    let desk = Desk::at(server, "prices");
    desk.put("bread", "2.40").await;
    let url = format!("{}/v1/feeds/prices", front.origin());
    let stream = Client::builder().disable_timeout().finish().get(url);
    let stream = stream.insert_header(("accept", "text/event-stream"));
    let stream = stream.insert_header(("authorization", desk.authorization())).send();
    let stream = within(AT_ONCE, "a stream begins", stream).await.expect("the proxy answers");
    assert_eq!(stream.status(), 200);
    let (mut stream, mut read) = (pin!(stream), String::new());
    for price in ["2.40", "2.60", "2.80"] {
        // The first was there before the stream.
        desk.put("bread", price).await;
        while !read.contains(price) {
            let more = within(AT_ONCE, "an event comes", stream.next()).await;
            let more = more.expect("the stream goes on").expect("the stream goes on");
            read.push_str(&String::from_utf8_lossy(&more));
        }
    }
}

#[actix_web::test]
async fn what_a_node_says_of_itself_is_not_said_through_nginx() {
    nodes_are_private(&Ahead::start(Kind::Nginx).await).await;
}

#[actix_web::test]
async fn what_a_node_says_of_itself_is_not_said_through_caddy() {
    nodes_are_private(&Ahead::start(Kind::Caddy).await).await;
}

async fn nodes_are_private(ahead: &Ahead) {
    let Ahead { front, server } = ahead;
    let sender = Sender::new();
    for path in OF_ITSELF {
        let inside = sender.get(&format!("{}{path}", server.origin())).await;
        assert_eq!(inside.status, 200, "{inside}");
        let outside = sender.get(&format!("{}{path}", front.origin())).await;
        let body = String::from_utf8_lossy(&outside.body).into_owned();
        // Kalends' own 404 is JSON: it would mean that the request was passed on.
        assert!(outside.status == 404 && !body.contains("errno"), "{path}: {outside}");
    }
}
