//! HTTP/2 peers that make more work than requests do, beside an honest sender.

use futures_util::future::join_all;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt, split};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::harness::{AT_ONCE, Authority, Server, within};
use crate::metrics::scrape;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

pub(crate) const END_HEADERS_AND_STREAM: u8 = 0x5;
pub(crate) const END_HEADERS: u8 = 0x4;

const ENHANCE_YOUR_CALM: u32 = 0xb;

/// `GET https://a/__version__` by the numbers of HPACK's static table (RFC 7541), and literals.
const GET: &[u8] = b"\x82\x87\x04\x0c/__version__\x01\x01a";

/// Requests of the honest sender on one connection, and frames of each flood.
const REQUESTS: u32 = 1500;
const FLOOD: u32 = 20_000;

/// Answers to hostile requests on one connection, which the budget allows at once and in the time that they take.
const HOSTILE_MAX: usize = 500;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, high, middle, low] = u32::try_from(payload.len()).expect("it is small").to_be_bytes();
    [&[high, middle, low, kind, flags], &stream.to_be_bytes()[..], payload].concat()
}

fn request(number: u32, more: &[u8]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS_AND_STREAM, 2 * number + 1, &[GET, more].concat())
}

/// What a server sent until the connection ended.
struct Received {
    answers: usize,
    /// The code of the last GOAWAY.
    code: Option<u32>,
}

/// Writes frames and reads what the server sends, until either end is reached.
async fn exchange(stream: TlsStream<TcpStream>, frames: impl Iterator<Item = Vec<u8>>) -> Received {
    let (mut read, mut write) = split(stream);
    let sending = async {
        let begin = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
        if write.write_all(&begin).await.is_err() {
            return;
        }
        for frame in frames {
            if write.write_all(&frame).await.is_err() {
                return;
            }
        }
        let _ = write.flush().await;
    };
    let receiving = async {
        let mut received = Received { answers: 0, code: None };
        let mut head = [0; 9];
        while read.read_exact(&mut head).await.is_ok() {
            let [high, middle, low, kind, ..] = head;
            let length = u32::from_be_bytes([0, high, middle, low]);
            let mut payload = vec![0; length as usize];
            if read.read_exact(&mut payload).await.is_err() {
                break;
            }
            match kind {
                HEADERS => received.answers += 1,
                GOAWAY => received.code = payload[4..8].try_into().ok().map(u32::from_be_bytes),
                _ => {}
            }
        }
        received
    };
    let both = async { tokio::join!(sending, receiving).1 };
    within(AT_ONCE, "the connection ends", both).await
}

#[actix_web::test]
async fn a_flood_of_frames_of_any_kind_ends_its_connection() {
    let authority = Authority::new();
    let server = authority.server(&["--metrics-listen=127.0.0.1:0"]);
    let settings = [[0, 3, 0, 0, 0, 100], [0, 1, 0, 0, 16, 0]].concat();
    let of = |kind, flags, stream, payload: &[u8]| frame(kind, flags, stream, payload);
    let open = frame(HEADERS, END_HEADERS, 1, GET);
    for (what, before, flood) in [
        ("pings", vec![], of(PING, 0, 0, &[7; 8])),
        ("settings", vec![], of(SETTINGS, 0, 0, &settings)),
        ("window updates", vec![], of(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        ("priorities", vec![], of(PRIORITY, 0, 3, &[0, 0, 0, 0, 1])),
        ("unknown frames", vec![], of(200, 0, 0, &[])),
        ("empty data", open.clone(), of(DATA, 0, 1, &[])),
        ("resets", open, of(RST_STREAM, 0, 1, &[0, 0, 0, 8])),
    ] {
        let stream = authority.connect_as(&server, &["h2"]).await;
        let frames = std::iter::once(before).chain((0..FLOOD).map(|_| flood.clone()));
        let received = exchange(stream, frames).await;
        assert_eq!(received.code, Some(ENHANCE_YOUR_CALM), "{what}");
    }
    let ended = scrape(&server).await["kalends_http2_overspent_total"];
    assert!((1.0..=7.0).contains(&ended), "{ended}");
    let log = server.logged("HTTP/2 connections were ended").await;
    assert!(log.contains("connections"), "{log}");
}

#[actix_web::test]
async fn hostile_header_compression_ends_its_connections_and_an_honest_sender_is_served() {
    let authority = Authority::new();
    let server = authority.server(&["--metrics-listen=127.0.0.1:0"]);
    // A header of 3,900 bytes, which each request then names three times by its number in the dynamic table.
    let literal = [&b"\x40\x03x-a\x7f\xbd\x1d"[..], &[b'x'; 3900]].concat();
    let hostile: [(&str, Vec<u8>, Vec<u8>); 3] = [
        ("large values by number", literal, vec![0xbe; 3]),
        ("many headers by number", Vec::new(), vec![0x80 | 15; 330]),
        ("more headers than are allowed", Vec::new(), vec![0x80 | 15; 1300]),
    ];
    let honest = async {
        let stream = authority.connect_as(&server, &["h2"]).await;
        let (send, connection) = h2::client::handshake(stream).await.expect("it speaks HTTP/2");
        let connection = actix_web::rt::spawn(connection);
        let url = format!("https://{}/__version__", server.address());
        let mut send = send.ready().await.expect("the connection is open");
        for number in 0..REQUESTS {
            let request = hyper::Request::get(&url).body(()).expect("it is valid");
            send = send.ready().await.expect("the connection is open");
            let (answer, _) = send.send_request(request, true).expect("it is sent");
            assert_eq!(answer.await.expect("it is answered").status(), 200, "{number}");
        }
        drop(send);
        drop(connection.await);
    };
    let attacks = hostile.iter().map(async |(what, first, headers)| {
        let stream = authority.connect_as(&server, &["h2"]).await;
        let frames = (0..FLOOD).map(|number| match number {
            0 => request(0, first),
            _ => request(number, headers),
        });
        (what, exchange(stream, frames).await)
    });
    let (received, ()) = tokio::join!(join_all(attacks), honest);
    for (what, received) in received {
        assert_eq!(received.code, Some(ENHANCE_YOUR_CALM), "{what}");
        assert!(received.answers <= HOSTILE_MAX, "{what}: {} answers", received.answers);
    }
    assert_eq!(scrape(&server).await["kalends_http2_overspent_total"], 3.0);
}

#[actix_web::test]
async fn an_address_whose_connections_make_too_much_work_makes_few_further_handshakes() {
    let authority = Authority::new();
    let limits = ["--loopback-limited=true", "--address-handshakes-per-minute-max=130"];
    let server = authority.server(&limits);
    let pings = || (0..FLOOD).map(|_| frame(PING, 0, 0, &[7; 8]));
    for _ in 0..2 {
        let stream =
            connect_from(&authority, &server, [127, 0, 0, 2]).await.expect("it is admitted");
        assert_eq!(exchange(stream, pings()).await.code, Some(ENHANCE_YOUR_CALM));
    }
    let mut admitted = 0;
    while connect_from(&authority, &server, [127, 0, 0, 2]).await.is_some() {
        admitted += 1;
        assert!(admitted < 100, "each flood counts as many handshakes");
    }
    assert!(connect_from(&authority, &server, [127, 0, 0, 3]).await.is_some());
}

/// None if the connection is closed before its handshake.
async fn connect_from(
    authority: &Authority,
    server: &Server,
    address: [u8; 4],
) -> Option<TlsStream<TcpStream>> {
    let socket = TcpSocket::new_v4().expect("a socket can be made");
    socket.bind((address, 0).into()).expect("loopback has this address");
    let stream = socket.connect(server.address()).await.expect("the server takes connections");
    let name = ServerName::from(server.address().ip());
    TlsConnector::from(authority.client(&["h2"])).connect(name, stream).await.ok()
}
