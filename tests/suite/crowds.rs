//! Many connections to the public port: of one address, and of so many that it is nearly full or full.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use actix_web::rt::time::timeout;
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::net::TcpSocket;

use crate::harness::{AT_ONCE, Authority, Launch, Raw, Sender, Server, until};
use crate::metrics::scrape;

const GET: &str = "GET /__version__ HTTP/1.1\r\nHost: a\r\n\r\n";
const UPGRADE: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// Peers on loopback count by their addresses.
const LIMITED: &str = "--loopback-limited=true";

const ALICE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const BOB: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));
const CAROL: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 4));

/// A connection and the status of the answer to its request.
async fn asked(server: &Server, from: IpAddr, request: &str) -> (Raw, u16) {
    let to: IpAddr = match from {
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    let mut raw = Raw::open_from(from, SocketAddr::new(to, server.address().port())).await;
    raw.write(request).await;
    let answer = raw.answer().await;
    if answer.status >= 400 {
        answer.assert_error(answer.status, 201);
        assert!(answer.header("retry-after").is_some(), "{answer}");
    }
    (raw, answer.status)
}

async fn statuses(server: &Server, from: IpAddr, requests: &[&str]) -> (Vec<Raw>, Vec<u16>) {
    let (mut open, mut statuses) = (Vec::new(), Vec::new());
    for request in requests {
        let (raw, status) = asked(server, from, request).await;
        open.push(raw);
        statuses.push(status);
    }
    (open, statuses)
}

#[actix_web::test]
async fn an_address_has_so_many_connections_of_http_and_websockets_together() {
    // For both families: an IPv4 peer has a mapped address then.
    let mut launch = Launch::default().with(&[
        LIMITED,
        "--address-connections-max=3",
        "--metrics-listen=127.0.0.1:0",
    ]);
    launch.port = Some(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)));
    let server = Server::launch(launch);
    for peer in [ALICE, BOB, Ipv6Addr::LOCALHOST.into()] {
        let requests = [UPGRADE, GET, UPGRADE, GET, UPGRADE];
        let (mut open, answers) = statuses(&server, peer, &requests).await;
        assert_eq!(answers, [101, 200, 101, 429, 429], "{peer}");
        drop(open.remove(0));
        until(AT_ONCE, "a place is free", async || asked(&server, peer, GET).await.1 == 200).await;
    }
    let refused = scrape(&server).await;
    let refused = refused["kalends_limit_refusals_total{limit=\"address_connections_max\"}"];
    assert!(refused >= 6.0, "{refused}");
    let line = server.logged("address_connections_max").await;
    assert!(line.contains("refused_of_top") && !line.contains("127.0.0"), "{line}");
}

#[actix_web::test]
async fn a_connection_above_the_limit_of_its_address_is_closed_before_its_handshake() {
    let authority = Authority::new();
    let server = authority.server(&[LIMITED, "--address-connections-max=3"]);
    let mut open = Vec::new();
    for protocols in [&["h2"][..], &["http/1.1"], &[]] {
        open.push(authority.connect_as(&server, protocols).await);
    }
    let socket = async |from: IpAddr| {
        let socket = TcpSocket::new_v4().expect("a socket can be made");
        socket.bind(SocketAddr::new(from, 0)).expect("loopback has this address");
        socket.connect(server.address()).await.expect("the server takes connections")
    };
    let end = timeout(AT_ONCE, socket(Ipv4Addr::LOCALHOST.into()).await.read(&mut [0; 1])).await;
    assert!(matches!(end, Ok(Ok(0) | Err(_))), "the fourth connection is closed: {end:?}");
    let other = timeout(AT_ONCE / 20, socket(ALICE).await.read(&mut [0; 1])).await;
    assert!(other.is_err(), "that of another address waits for its handshake: {other:?}");
    drop(open);
    until(AT_ONCE, "a place is free", async || {
        let mut waiting = socket(Ipv4Addr::LOCALHOST.into()).await;
        timeout(AT_ONCE / 20, waiting.read(&mut [0; 1])).await.is_err()
    })
    .await;
}

#[actix_web::test]
async fn idle_connections_of_the_address_with_the_most_make_room_and_agents_stay() {
    const MAX: usize = 40;
    let (server, mut agent, channel) = Server::with_subscribed(&[
        LIMITED,
        "--workers=1",
        &format!("--connections-max={MAX}"),
        "--metrics-listen=127.0.0.1:0",
    ])
    .await;
    let (_websockets, upgraded) = statuses(&server, BOB, &[UPGRADE; 8]).await;
    assert_eq!(upgraded, [101; 8]);
    let (mut few, _) = statuses(&server, CAROL, &[GET; 3]).await;
    let mut many = Vec::new();
    for _ in 0..4 * MAX {
        let mut raw = Raw::open_from(ALICE, server.address()).await;
        raw.write(GET).await;
        if let Ok(Some(answer)) = timeout(AT_ONCE, raw.try_answer()).await {
            assert!([200, 503].contains(&answer.status), "{answer}");
        }
        many.push(raw);
    }
    // Those with few connections, and the agents, are served as before.
    for raw in &mut few {
        raw.write(GET).await;
        assert_eq!(raw.answer().await.status, 200);
    }
    let sender = Sender::new();
    sender.push_to(&mut agent, &channel, "to one that stayed").await;
    let port = || async { server.health().await.json()["port"].clone() };
    assert!(port().await["connections"].as_u64() <= Some(MAX as u64 + 2), "{}", port().await);
    // A newcomer has a place, though all of the attacker's are still tried.
    until(AT_ONCE, "a newcomer connects", async || {
        let to = server.address();
        let mut raw = Raw::open_from(Ipv4Addr::new(127, 0, 0, 5).into(), to).await;
        raw.write(UPGRADE).await;
        let answer = timeout(AT_ONCE, raw.try_answer()).await.expect("the connection ends");
        answer.is_some_and(|answer| answer.status == 101)
    })
    .await;
    let metrics = scrape(&server).await;
    let closed = metrics["kalends_port_idle_closed_total"];
    assert!(closed >= 1.0, "{closed}");
    let log = server.log();
    let lines = log.lines().filter(|line| line.contains("idle HTTP connections are closed"));
    assert_eq!(lines.count(), 1, "{log}");
    let (_, upgraded) = statuses(&server, BOB, &[UPGRADE]).await;
    assert_eq!(upgraded, [101], "so do agents of an address with many agents");
    drop(many);
}

#[actix_web::test]
async fn a_port_that_is_full_of_agents_refuses_strangers_and_admits_an_operator() {
    let server = Server::start_with(&[LIMITED, "--workers=1", "--connections-max=10"]);
    let (agents, answers) = statuses(&server, ALICE, &[UPGRADE; 10]).await;
    assert_eq!(answers, [101; 10]);
    for request in [GET, UPGRADE] {
        assert_eq!(asked(&server, BOB, request).await.1, 503);
    }
    let health: Value = server.health().await.json();
    assert_eq!(health["port"]["connections_max"], 10, "{health}");
    assert!(health["port"]["times_full"].as_u64() >= Some(3), "{health}");
    server.logged("the public port is full, further connections are refused").await;
    drop(agents);
    until(AT_ONCE, "a place is free", async || asked(&server, BOB, GET).await.1 == 200).await;
}
