//! Servers for tests of the tools. Each test scripts the answers and checks the requests.

use std::net::SocketAddr;

use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::header::SEC_WEBSOCKET_PROTOCOL;
use tokio_tungstenite::{WebSocketStream, accept_async, accept_hdr_async};

/// The first byte of a TLS connection (RFC 8446 §5.1).
pub(super) const TLS_HANDSHAKE: u8 = 22;

pub(super) struct TestServer(TcpListener);

/// A WebSocket with a user agent at its other end.
pub(super) struct TestSocket(pub(super) WebSocketStream<TcpStream>);

#[derive(Debug)]
pub(super) struct TestRequest {
    /// Request line and headers.
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

impl TestRequest {
    /// The value of a header.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

impl TestServer {
    pub(super) async fn start() -> (Self, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (Self(listener), address)
    }

    /// Accepts one WebSocket with the subprotocol that it requests.
    pub(super) async fn websocket(&self) -> TestSocket {
        let stream = self.connection().await;
        TestSocket(accept_hdr_async(stream, take_protocol).await.unwrap())
    }

    /// Accepts one WebSocket without a subprotocol.
    pub(super) async fn websocket_without_protocol(&self) -> TestSocket {
        let stream = self.connection().await;
        TestSocket(accept_async(stream).await.unwrap())
    }

    pub(super) async fn connection(&self) -> TcpStream {
        self.0.accept().await.unwrap().0
    }

    /// Accepts one connection and returns its first byte.
    pub(super) async fn first_byte(&self) -> u8 {
        self.connection().await.read_u8().await.unwrap()
    }

    /// Accepts one connection, answers its request, and returns the request.
    pub(super) async fn answer(&self, response: &str) -> TestRequest {
        let mut stream = self.connection().await;
        let request = read_request(&mut stream).await;
        stream.write_all(response.as_bytes()).await.unwrap();
        request
    }
}

impl TestSocket {
    /// The next text, as JSON.
    pub(super) async fn hear(&mut self) -> Value {
        match self.0.next().await {
            Some(Ok(Message::Text(text))) => serde_json::from_str(&text).unwrap(),
            other => panic!("expected a text, got {other:?}"),
        }
    }

    pub(super) async fn say(&mut self, value: Value) {
        self.0.send(Message::text(value.to_string())).await.unwrap();
    }
}

#[expect(clippy::result_large_err, reason = "the library wants this type")]
fn take_protocol(request: &Request, mut response: Response) -> Result<Response, ErrorResponse> {
    let asked = request.headers().get(SEC_WEBSOCKET_PROTOCOL).cloned();
    response.headers_mut().extend(asked.map(|name| (SEC_WEBSOCKET_PROTOCOL, name)));
    Ok(response)
}

async fn read_request(stream: &mut TcpStream) -> TestRequest {
    let mut bytes = Vec::new();
    let end = loop {
        stream.read_buf(&mut bytes).await.unwrap();
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
    };
    let body = bytes.split_off(end);
    let mut request = TestRequest { head: String::from_utf8(bytes).unwrap(), body };
    let length = request.header("content-length").map_or(0, |text| text.parse().unwrap());
    while request.body.len() < length {
        stream.read_buf(&mut request.body).await.unwrap();
    }
    request
}
