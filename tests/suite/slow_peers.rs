//! Peers that are silent, stop half-way, do not read or vanish: their own messages are delivered
//! from storage, and other connections are unaffected.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::{join, join_all};
use socket2::SockRef;
use tokio::io::{AsyncWriteExt, copy, sink};
use tokio::net::TcpStream;
use tokio::time::sleep;
use tokio_tungstenite::tungstenite::Message;

use crate::harness::{AT_ONCE, Agent, Bystander, Raw, Sender, Server, Socket, until};

const VERSION_REQUEST: &str = "GET /__version__ HTTP/1.1\r\nHost: a\r\n\r\n";

const HEALTH_REQUEST: &str = "GET /health HTTP/1.1\r\nHost: a\r\n\r\n";

const UPGRADE: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// Processor time in a second of a server that waits.
const IDLE: Duration = Duration::from_millis(200);

/// `request_headers_timeout_ms` of the tests: long enough for the pushes of a bystander on a busy machine.
const HEADERS_TIMEOUT: Duration = Duration::from_millis(3000);

/// A server with [`HEADERS_TIMEOUT`].
fn impatient() -> Server {
    let timeout = HEADERS_TIMEOUT.as_millis().to_string();
    Server::start_with(&["--request-headers-timeout-ms", &timeout])
}

#[actix_web::test]
async fn a_silent_connection_is_closed_without_an_answer() {
    let server = impatient();
    let mut bystander = Bystander::connect(&server).await;
    let raw = Raw::open(&server).await;
    // A browser that connects ahead would read an answer as that to its next request.
    assert_eq!(raw.rest(AT_ONCE).await, b"");
    bystander.is_unaffected().await;
}

#[actix_web::test]
async fn unfinished_headers_are_answered_408() {
    let server = impatient();
    let mut bystander = Bystander::connect(&server).await;
    let mut raw = Raw::open(&server).await;
    raw.write("POST /wpush/x HTTP/1.1\r\nHost: a\r\nTT").await;
    let answer = raw.rest(AT_ONCE).await;
    assert!(answer.starts_with(b"HTTP/1.1 408"), "{}", String::from_utf8_lossy(&answer));
    bystander.is_unaffected().await;
}

#[actix_web::test]
async fn slow_headers_close_the_connection() {
    let server = impatient();
    let mut bystander = Bystander::connect(&server).await;
    let stream = TcpStream::connect(server.address()).await.unwrap();
    let (_read, mut write) = stream.into_split();
    write.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    until(AT_ONCE, "the server closes the connection", async || {
        write.write_all(b"X: y\r\n").await.is_err()
    })
    .await;
    bystander.is_unaffected().await;
}

#[actix_web::test]
async fn an_unfinished_body_is_answered_408_and_delivers_nothing() {
    let (server, mut agent, channel) =
        Server::with_subscribed(&["--request-body-timeout-ms", "300"]).await;
    let path = channel.path(&server);
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: a\r\nTTL: 60\r\nContent-Encoding: aes128gcm\r\n");
    for rest in
        ["Content-Length: 100\r\n\r\nhalf", "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"]
    {
        let mut raw = Raw::open(&server).await;
        raw.write(format!("{head}{rest}")).await;
        raw.answer().await.assert_error(408, 999);
    }
    // A sender that disconnects half-way through its request gets no answer.
    let mut raw = Raw::open(&server).await;
    raw.write(format!("{head}Content-Length: 100\r\n\r\nhalf")).await;
    drop(raw);
    Sender::new().push_to(&mut agent, &channel, "the first to arrive").await;
}

#[actix_web::test]
async fn an_agent_that_vanishes_loses_nothing() {
    let server = Server::start_with(&["--ack-wait-ms", "5000"]);
    let mut bystander = Bystander::connect(&server).await;
    let sender = Sender::new();
    for way in [Vanish::Closes, Vanish::ClosesAndFinishes, Vanish::Finishes, Vanish::Resets] {
        let (mut agent, channel) = Agent::subscribed(&server).await;
        let uaid = agent.uaid().to_owned();
        // The agent disconnects while a push waits for its ack.
        let push = sender.push(&channel.endpoint, "under way");
        let vanish = async {
            let notification = agent.notification().await;
            way.vanish(agent).await;
            notification
        };
        let (_, first) = tokio::join!(push, vanish);
        until(AT_ONCE, "the server notices", async || server.connections().await == 1).await;
        sender.push(&channel.endpoint, "afterwards").await;

        let mut agent = Agent::reconnect(&server, &uaid).await;
        let got = agent.take(2).await;
        assert_eq!(got[0], first, "{way:?}");
        assert_eq!(got[1].body(), "afterwards", "{way:?}");
        agent.leave().await;
        bystander.is_unaffected().await;
    }
}

/// How an agent ends its connection.
#[derive(Debug, Clone, Copy)]
enum Vanish {
    /// Sends a close frame and leaves the TCP connection open.
    Closes,
    /// Sends a close frame and closes the TCP connection at once.
    ClosesAndFinishes,
    /// Closes the TCP connection without a close frame.
    Finishes,
    /// Resets the TCP connection.
    Resets,
}

impl Vanish {
    async fn vanish(self, mut agent: Agent) {
        let socket = agent.socket();
        if matches!(self, Self::Closes | Self::ClosesAndFinishes) {
            socket.send(Message::Close(None)).await.expect("the server is there");
        }
        if matches!(self, Self::ClosesAndFinishes | Self::Finishes) {
            socket.stream().shutdown().await.expect("the server is there");
        }
        match self {
            Self::Closes | Self::ClosesAndFinishes | Self::Finishes => agent.ended().await,
            Self::Resets => {
                let stream = SockRef::from(&*socket.stream());
                stream.set_linger(Some(Duration::ZERO)).expect("the socket is open");
            }
        }
    }
}

#[actix_web::test]
async fn only_a_peer_that_does_not_answer_pings_is_closed() {
    let (server, mut silent, channel) =
        Server::with_subscribed(&["--keepalive-interval-s", "1", "--keepalive-grace-s", "1"]).await;
    // This peer answers pings while it reads; the other one does not read.
    let lively = Agent::new(&server).await.ack_in_background();
    until(AT_ONCE, "the silent one is gone", async || server.connections().await == 1).await;
    assert_eq!(silent.socket().closed().await.0, Some(4408));
    Sender::new().push(&channel.endpoint, "kept").await;
    let mut silent = Agent::reconnect(&server, silent.uaid()).await;
    assert_eq!(silent.take(1).await[0].body(), "kept");
    drop(lively);
}

#[actix_web::test]
async fn an_agent_that_stops_reading_delays_no_other_and_loses_nothing() {
    const LARGE: usize = 200;
    const SMALL: usize = 1500;
    let server = Server::start_with(&[
        "--ack-wait-ms",
        "300",
        "--answer-grace-ms",
        "200",
        "--payload-bytes-max",
        "65536",
        "--tcp-user-timeout-ms",
        "3000",
        "--user-messages-max=0",
        "--user-bytes-max=0",
        "--channel-messages-max=0",
        "--channel-bytes-max=0",
    ]);
    let mut bystander = Bystander::connect(&server).await;
    let mut slow = Agent::hello(Socket::with_small_buffer(&server).await, None).await.unwrap();
    let channel = slow.register().await;

    let flood = async {
        let large: Vec<_> = (0..LARGE).map(|n| format!("{n} {}", "x".repeat(60_000))).collect();
        let small: Vec<_> = (0..SMALL).map(|n| n.to_string()).collect();
        let bodies = [large, small].concat();
        join_all(bodies.chunks(bodies.len() / 16).map(async |bodies| {
            let sender = Sender::new();
            for body in bodies {
                sender.push(&channel.endpoint, body).await;
            }
        }))
        .await;
        bodies
    };
    let neighbour = async {
        for _ in 0..100 {
            bystander.is_unaffected().await;
        }
    };
    let (bodies, ()) = tokio::join!(flood, neighbour);
    until(AT_ONCE, "the system ends the connection", async || server.connections().await == 1)
        .await;

    let agent = Agent::reconnect(&server, slow.uaid()).await.ack_in_background();
    let got = agent.until("all messages arrive", |got| got.len() >= bodies.len()).await;
    assert_eq!(got.len(), bodies.len());
    let got: BTreeSet<_> = got.iter().map(|got| got.body()).collect();
    assert!(bodies.iter().all(|body| got.contains(body.as_str())));
}

#[actix_web::test]
async fn the_server_stops_reading_from_a_peer_that_does_not_read() {
    const MEMORY_KIB_MAX: u64 = 100 * 1024;
    let server = Server::start_with(&["--agent-frames-per-second-max=0"]);
    let mut bystander = Bystander::connect(&server).await;
    let mut agent = Agent::hello(Socket::with_small_buffer(&server).await, None).await.unwrap();
    agent.block_server().await;
    bystander.is_unaffected().await;
    let memory_kib = server.memory_kib();
    assert!(memory_kib < MEMORY_KIB_MAX, "the server has {memory_kib} KiB");
}

#[actix_web::test]
async fn clients_that_send_requests_and_read_no_answer_cost_a_bounded_buffer_and_no_processor_time()
{
    const CLIENTS: usize = 20;
    const CLIENT_KIB_MAX: u64 = 2048;
    let server = Server::start();
    let mut bystander = Bystander::connect(&server).await;
    let memory_kib = server.memory_kib();
    let clients = join_all((0..CLIENTS).map(async |_| {
        let mut client = Raw::open(&server).await;
        client.write_until_blocked(&VERSION_REQUEST.repeat(1000)).await;
        client
    }))
    .await;
    let grown_kib = server.memory_kib().saturating_sub(memory_kib);
    assert!(grown_kib < CLIENTS as u64 * CLIENT_KIB_MAX, "the server has grown by {grown_kib} KiB");
    is_at_rest(&server).await;
    bystander.is_unaffected().await;
    drop(clients);
}

#[actix_web::test]
async fn requests_behind_one_that_waits_cost_no_processor_time() {
    let (server, mut agent) = Server::with_agent(&["--ack-wait-ms=10000"]).await;
    let path = agent.register().await.path(&server);
    let mut client = Raw::open(&server).await;
    client.write(format!("POST {path} HTTP/1.1\r\nHost: a\r\nTTL: 60\r\n\r\n")).await;
    client.write_until_blocked(&VERSION_REQUEST.repeat(1000)).await;
    is_at_rest(&server).await;
    let push = agent.notification().await;
    agent.ack(&push).await;
    assert_eq!(client.answer().await.status, 201);
    assert_eq!(client.answer().await.status, 200);
}

#[actix_web::test]
async fn an_upgrade_behind_requests_whose_answers_are_not_read_waits_for_them() {
    let server = Server::start();
    // After some of these numbers of requests the socket takes no more, while the last one waits for the store.
    let numbers = (400..1000).step_by(20);
    let clients = join_all(numbers.map(async |requests| {
        let mut client = Raw::open_with_small_buffer(&server).await;
        client.write(VERSION_REQUEST.repeat(requests) + HEALTH_REQUEST + UPGRADE).await;
        (client, requests)
    }))
    .await;
    is_at_rest(&server).await;
    join_all(clients.into_iter().map(async |(mut client, requests)| {
        for _ in 0..=requests {
            assert_eq!(client.answer().await.status, 200);
        }
        assert_eq!(client.answer().await.status, 101);
    }))
    .await;
    until(AT_ONCE, "no agent is connected", async || server.connections().await == 0).await;
}

#[actix_web::test]
async fn requests_that_are_decoded_late_are_answered() {
    let server = Server::start();
    let mut client = Raw::open(&server).await;
    client.write(HEALTH_REQUEST.repeat(165) + &VERSION_REQUEST.repeat(101)).await;
    for answered in 0..266 {
        assert_eq!(client.answer().await.status, 200, "{answered}");
    }
}

#[actix_web::test]
async fn a_further_request_has_as_much_time_for_its_headers_as_the_first() {
    let server = impatient();
    let mut bystander = Bystander::connect(&server).await;
    for part in ["\r\n", "POST /wpush/x HTTP/1.1\r\nHost: a\r\nTT"] {
        let mut raw = Raw::open(&server).await;
        raw.write(VERSION_REQUEST).await;
        assert_eq!(raw.answer().await.status, 200);
        raw.write(part).await;
        assert_eq!(raw.rest(AT_ONCE).await, b"");
    }
    bystander.is_unaffected().await;
}

/// Waits until the server computes next to nothing for a second.
async fn is_at_rest(server: &Server) {
    until(AT_ONCE, "the server is at rest", async || computes_for(server).await < IDLE).await;
}

/// The processor time that the server takes in a second.
async fn computes_for(server: &Server) -> Duration {
    let before = server.cpu_time();
    sleep(Duration::from_secs(1)).await;
    server.cpu_time() - before
}

#[actix_web::test]
async fn a_huge_frame_is_rejected_by_its_length() {
    let server = Server::start();
    let mut bystander = Bystander::connect(&server).await;
    let mut agent = Agent::new(&server).await;
    let head = b"\x81\xff\0\0\x01\0\0\0\0\0\0\0\0\0";
    agent.socket().stream().write_all(head).await.unwrap();
    assert_eq!(agent.socket().closed().await.0, Some(1009));
    agent.ended().await;
    bystander.is_unaffected().await;
}

#[actix_web::test]
async fn a_client_that_sends_many_requests_at_once_keeps_no_other_waiting() {
    const REQUESTS: usize = 100_000;
    let server = Server::start_with(&["--workers", "1"]);
    let (mut answers, mut requests) =
        TcpStream::connect(server.address()).await.unwrap().into_split();
    let flood = async {
        for _ in 0..REQUESTS / 100 {
            requests.write_all(VERSION_REQUEST.repeat(100).as_bytes()).await.unwrap();
        }
        requests.write_all(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n").await.unwrap();
    };
    // The server closes the connection after the last answer.
    let flood = join(flood, async { copy(&mut answers, &mut sink()).await.unwrap() });
    let other = async {
        let mut other = Raw::open(&server).await;
        for _ in 0..20 {
            other.write(VERSION_REQUEST).await;
            assert_eq!(other.answer().await.status, 200);
        }
    };
    tokio::select! {
        _ = flood => panic!("the other client waited until the flood was over"),
        () = other => {}
    }
}
