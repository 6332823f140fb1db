//! Peers that send requests and read no answer, over HTTP/1 with and without TLS.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::harness::{Agent, Authority, Bystander, Server};

/// Memory of a connection whose peer sends requests and reads no answer, in KiB.
const KIB_OF_UNREAD_MAX: u64 = 64;

#[actix_web::test]
async fn a_peer_that_reads_no_answer_costs_little_whatever_it_asks_for() {
    let server = Server::start_with(&["--workers=1"]);
    let mut bystander = Bystander::connect(&server).await;
    let (_, channel) = Agent::offline(&server).await;
    fill_with_each_request(&server, &channel.path(&server), async |stream| stream).await;
    bystander.is_unaffected().await;
}

#[actix_web::test]
async fn a_peer_that_reads_no_answer_costs_little_over_tls_too() {
    let authority = Authority::new();
    let server = authority.server(&["--workers=1"]);
    let client = authority.client(&["http/1.1"]);
    let encrypted = async |stream| authority.connect_over(stream, Arc::clone(&client)).await;
    let endpoint = authority.agent(&server).await.register().await;
    let (_, path) = endpoint.split_once(&server.address().to_string()).unwrap();
    fill_with_each_request(&server, path, encrypted).await;
}

/// `open` makes the stream of a connection.
async fn fill_with_each_request<S: AsyncWrite + Unpin>(
    server: &Server,
    path: &str,
    open: impl AsyncFn(TcpStream) -> S,
) {
    const PEERS: usize = 60;
    let push = format!("POST {path} HTTP/1.1\r\nHost: a\r\nTTL: 0\r\n");
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    let requests = [
        "GET / HTTP/1.1\r\n\r\n".to_owned(),
        get("/"),
        get("/openapi.json"),
        get("/health"),
        get("/nothing"),
        get("/web/page.css"),
        get(&format!("/nothing?{}", "x".repeat(7_000))),
        format!("{push}\r\n"),
        format!("{push}Content-Length: 3000\r\n\r\n{}", "x".repeat(3000)),
        format!("{push}Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"),
    ];
    // The first round fills what the server keeps for all.
    for (round, request) in requests.iter().take(1).chain(&requests).enumerate() {
        let before = server.memory_kib();
        let peers = join_all((0..PEERS).map(|_| fill(server, &open, request))).await;
        let each = server.memory_kib().saturating_sub(before) / PEERS as u64;
        println!("{each} KiB for {request:.40?}");
        assert!(round == 0 || each <= KIB_OF_UNREAD_MAX, "{each} KiB for {request:.60}");
        drop(peers);
    }
}

/// Sends a request again and again until the server reads no more, or closes the connection.
async fn fill<S: AsyncWrite + Unpin>(
    server: &Server,
    open: impl AsyncFn(TcpStream) -> S,
    request: &str,
) -> S {
    let socket = TcpSocket::new_v4().expect("there are sockets");
    socket.set_recv_buffer_size(4096).expect("it is a number of bytes");
    let stream = socket.connect(server.address()).await.expect("the server accepts");
    let mut stream = open(stream).await;
    let many = request.repeat(64 * 1024 / request.len());
    let pause = Duration::from_millis(700);
    while let Ok(Ok(())) = timeout(pause, stream.write_all(many.as_bytes())).await {}
    stream
}
