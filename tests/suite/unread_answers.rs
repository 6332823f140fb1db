//! Peers that send requests and read no answer, over HTTP/1 with and without TLS, and over HTTP/2.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::feeds::FeedClient;
use crate::harness::{Agent, Authority, Bystander, Server};
use crate::http2_floods::{
    DATA, END_HEADERS, END_HEADERS_AND_STREAM, HEADERS, PREFACE, SETTINGS, frame,
};

/// A busy machine makes hundreds of handshakes slowly.
const LONG_HANDSHAKE: &str = "--tls-handshake-timeout-ms=60000";

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
    let server = authority.server(&["--workers=1", LONG_HANDSHAKE]);
    let client = authority.client(&["http/1.1"]);
    let encrypted = async |stream| authority.connect_over(stream, Arc::clone(&client)).await;
    let endpoint = authority.agent(&server).await.register().await;
    let (_, path) = endpoint.split_once(&server.address().to_string()).unwrap();
    fill_with_each_request(&server, path, encrypted).await;
}

/// The same over HTTP/2, half as much again as when this was written: 100 streams of 4 KiB at rest, and up to 13 KiB while
/// they are answered. Clients assume that they may have as many before they know a server's settings.
const KIB_OF_UNREAD_HTTP2_MAX: u64 = 1900;

/// Requests of a connection over HTTP/2, more than it has streams.
const STREAMS: u32 = 120;

/// A flag of the last frame of a body.
const END_STREAM: u8 = 1;

/// A peer's setting of the window of each stream (RFC 9113 §6.5.2).
const INITIAL_WINDOW_SIZE: u8 = 4;

#[actix_web::test]
async fn a_peer_that_reads_no_answer_costs_little_over_http2_whatever_it_asks_for() {
    const PEERS: usize = 100;
    let authority = Authority::new();
    let server = authority.server(&["--workers=1", "--feed-followers-max=100000", LONG_HANDSHAKE]);
    let client = authority.client(&["h2"]);
    let endpoint = authority.agent(&server).await.register().await;
    let (_, path) = endpoint.split_once(&server.address().to_string()).unwrap();
    let token = FeedClient::at(&server, "large").authorization();
    let get = |path: &str, headers: &[(&str, &str)]| request(b'\x82', path, headers, None);
    let push = |body| request(b'\x83', path, &[("ttl", "0")], body);
    let token = [("authorization", token.as_str())];
    let events = [token[0], ("accept", "text/event-stream")];
    let requests = [
        ("the page", get("/", &[])),
        ("a large answer", get("/openapi.json", &[])),
        ("a small answer", get("/health", &[])),
        ("an error", get("/nothing", &[])),
        ("a long path", get(&format!("/nothing?{}", "x".repeat(7_000)), &[])),
        ("a long header", get("/nothing", &[("a", &"x".repeat(12_000))])),
        ("a push", push(None)),
        ("a push with a body", push(Some(3000))),
        ("events", get("/v1/feeds/large", &events)),
        ("a long poll", get("/v1/feeds/large?after=0&wait=60", &token)),
    ];
    let ask = async |peers: usize, request, window| {
        let peers = (0..peers).map(async |_| {
            let stream = slow_reader(&server).await;
            let stream = authority.connect_over(stream, Arc::clone(&client)).await;
            ask_over_http2(stream, request, window).await
        });
        join_all(peers).await
    };
    // What the server keeps for all is there before.
    for (_, request) in &requests {
        ask(10, request, 0).await;
    }
    let before = server.memory_kib();
    for window in [0, 65_535] {
        for (what, request) in &requests {
            let peers = ask(PEERS, request, window).await;
            let each = server.memory_kib().saturating_sub(before) / PEERS as u64;
            println!("{each} KiB for {what}, window {window}");
            assert!(each <= KIB_OF_UNREAD_HTTP2_MAX, "{each} KiB for {what}, window {window}");
            drop(peers);
        }
    }
}

/// The headers of a request (RFC 7541), and the size of its body.
type Http2Request = (Vec<u8>, Option<usize>);

/// `method` is its number in the static table.
fn request(method: u8, path: &str, headers: &[(&str, &str)], body: Option<usize>) -> Http2Request {
    let mut list = vec![method, 0x87, 0x04];
    text(&mut list, path);
    list.extend_from_slice(b"\x01\x01a");
    for (name, value) in headers {
        list.push(0);
        text(&mut list, name);
        text(&mut list, value);
    }
    (list, body)
}

/// A literal, after its length with a prefix of 7 bits.
fn text(list: &mut Vec<u8>, text: &str) {
    match text.len().checked_sub(127) {
        None => list.push(text.len() as u8),
        Some(mut rest) => {
            list.push(127);
            while rest >= 128 {
                list.push((rest % 128 + 128) as u8);
                rest /= 128;
            }
            list.push(rest as u8);
        }
    }
    list.extend_from_slice(text.as_bytes());
}

/// Sends the request on as many streams as the budget of frames allows. A peer whose streams have no window reads all that
/// is sent to it, and one with a window nothing.
async fn ask_over_http2<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    (headers, body): &Http2Request,
    window: u32,
) -> S {
    let setting = [&[0, INITIAL_WINDOW_SIZE][..], &window.to_be_bytes()].concat();
    let mut sent = [PREFACE, &frame(SETTINGS, 0, 0, &setting)].concat();
    let units = 8 + headers.len() as u32 / 512;
    let streams = STREAMS.min(1400 / units);
    for stream in 0..if body.is_some() { streams.min(20) } else { streams } {
        let number = 2 * stream + 1;
        match body {
            None => sent.extend(frame(HEADERS, END_HEADERS_AND_STREAM, number, headers)),
            Some(bytes) => {
                sent.extend(frame(HEADERS, END_HEADERS, number, headers));
                sent.extend(frame(DATA, END_STREAM, number, &vec![b'x'; *bytes]));
            }
        }
    }
    let (mut read, mut write) = split(stream);
    let sending = async {
        let _ = write.write_all(&sent).await;
        let _ = write.flush().await;
    };
    let receiving = async {
        let mut bytes = [0; 4096];
        while window == 0 && read.read(&mut bytes).await.is_ok_and(|count| count > 0) {}
    };
    let _ = timeout(Duration::from_millis(1500), join(sending, receiving)).await;
    read.unsplit(write)
}

/// `open` makes the stream of a connection.
async fn fill_with_each_request<S: AsyncWrite + Unpin>(
    server: &Server,
    path: &str,
    open: impl AsyncFn(TcpStream) -> S,
) {
    // The allocator takes memory by 4 MiB, which would be more than the bound for each of 60.
    const PEERS: usize = 300;
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
    let mut stream = open(slow_reader(server).await).await;
    let many = request.repeat(64 * 1024 / request.len());
    let pause = Duration::from_millis(700);
    while let Ok(Ok(())) = timeout(pause, stream.write_all(many.as_bytes())).await {}
    stream
}

/// A connection of which the kernel keeps little.
async fn slow_reader(server: &Server) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("there are sockets");
    socket.set_recv_buffer_size(4096).expect("it is a number of bytes");
    socket.connect(server.address()).await.expect("the server accepts")
}
