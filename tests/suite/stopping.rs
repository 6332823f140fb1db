//! SIGTERM: work in progress is completed, every agent receives a close frame, and the process ends
//! in time.

use std::io::ErrorKind;

use futures_util::future::join_all;
use tokio::net::TcpStream;

use crate::harness::{AT_ONCE, Agent, Raw, Sender, Server, Socket, until};

/// A server that waits for nothing ends long before this is over.
const LONG_WAIT: &str = "--shutdown-wait-ms=600000";

#[actix_web::test]
async fn a_push_that_waits_for_its_ack_at_sigterm_is_stored_and_answered_201() {
    let (mut server, mut agent, channel) =
        Server::with_subscribed(&["--ack-wait-ms=600000", LONG_WAIT]).await;
    let uaid = agent.uaid().to_owned();
    let sender = Sender::new();
    let push = sender.push(&channel.endpoint, "waits");
    let stopped = async {
        let first = agent.notification().await;
        server.signal("TERM");
        assert_eq!(agent.socket().closed().await.0, Some(1001));
        agent.ended().await;
        first
    };
    let (_, first) = tokio::join!(push, stopped);
    assert_eq!(server.ended_within(AT_ONCE).await.code(), Some(0));

    server.restart();
    let mut agent = Agent::reconnect(&server, &uaid).await;
    assert_eq!(agent.notification().await, first);
}

#[actix_web::test]
async fn every_agent_gets_a_close_frame_and_the_end_of_its_connection() {
    for signal in ["TERM", "INT"] {
        let mut server = Server::start_with(&[LONG_WAIT]);
        let agents = join_all((0..50).map(|_| Agent::new(&server))).await;
        let greeted_by_nobody = Socket::open(&server).await;
        let idle = Sender::new();
        idle.get(&format!("{}/health", server.origin())).await;
        let mut half = Raw::open(&server).await;
        half.write("POST /wpush/x HTTP/1.1\r\nHost: a\r\n").await;

        server.signal(signal);
        join_all(agents.into_iter().map(async |mut agent| {
            assert_eq!(agent.socket().closed().await.0, Some(1001));
            agent.ended().await;
        }))
        .await;
        assert_eq!(server.ended_within(AT_ONCE).await.code(), Some(0), "{signal}");
        greeted_by_nobody.ended().await;
        half.rest(AT_ONCE).await;
    }
}

#[actix_web::test]
async fn an_agent_that_does_not_read_does_not_delay_the_end() {
    let (mut server, mut agent) = Server::with_agent(&[LONG_WAIT]).await;
    agent.block_server().await;

    server.signal("TERM");
    assert_eq!(server.ended_within(AT_ONCE).await.code(), Some(0));
}

#[actix_web::test]
async fn a_stopping_server_rejects_connections() {
    let mut server = Server::start();
    // This request delays the end of the server.
    let path = Agent::new(&server).await.register().await.path(&server);
    let mut half = Raw::open(&server).await;
    let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nTTL: 60\r\nContent-Length: 100\r\n\r\n");
    half.write(head).await;

    server.signal("TERM");
    until(AT_ONCE, "a connection is refused", async || {
        let late = TcpStream::connect(server.address()).await;
        late.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    })
    .await;
    server.kill();
}

#[actix_web::test]
async fn a_server_that_printed_its_address_handles_sigterm() {
    for _ in 0..10 {
        assert_eq!(Server::start().terminate().code(), Some(0));
    }
}

#[actix_web::test]
async fn a_server_with_shutdown_wait_ms_0_exits_with_0() {
    let (mut server, uaid, channel) = Server::with_offline(&["--shutdown-wait-ms", "0"]).await;
    let connected = Agent::new(&server).await;
    Sender::new().push(&channel.endpoint, "stored").await;
    server.signal("TERM");
    assert_eq!(server.ended_within(AT_ONCE).await.code(), Some(0));
    connected.ended().await;

    server.restart();
    let _agent = Agent::returned_to(&server, &uaid, "stored").await;
}

#[actix_web::test]
async fn every_201_before_sigterm_is_kept_and_no_push_is_accepted_afterwards() {
    let mut server = Server::start();
    let agents = join_all((0..4).map(|_| Agent::offline(&server))).await;
    let answered = std::cell::Cell::new(0);
    let storm = join_all(agents.iter().map(async |(_, channel)| {
        let (sender, mut promised) = (Sender::new(), Vec::new());
        for number in 0.. {
            let body = number.to_string();
            let push = sender.post(&channel.endpoint).ttl(3600).body(body.as_str());
            match push.try_send().await {
                Ok(answer) if answer.status == 201 => promised.push(body),
                Ok(answer) => assert_eq!(answer.status, 503, "{answer}"),
                Err(_) => break,
            }
            answered.set(answered.get() + 1);
        }
        promised
    }));
    let stop = async {
        until(AT_ONCE, "so many answers", async || answered.get() >= 100).await;
        server.signal("TERM");
    };
    let (promised, ()) = tokio::join!(storm, stop);
    assert_eq!(server.ended_within(AT_ONCE).await.code(), Some(0));

    server.restart();
    for ((uaid, _), promised) in agents.iter().zip(promised) {
        let mut agent = Agent::reconnect(&server, uaid).await;
        let got = agent.take(promised.len()).await;
        assert!(got.iter().map(|got| got.body()).eq(promised.iter()));
    }
}
