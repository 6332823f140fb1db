//! Servers for tests of the tools: they do what a test says and keep what they were sent.

use std::net::SocketAddr;

use actix_codec::Framed;
use actix_http::ws::{Codec, Frame, Message, hash_key};
use actix_web::rt::net::{TcpListener, TcpStream};
use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A listening socket.
pub(super) struct Fake(TcpListener);

/// A WebSocket with a user agent at its other end.
pub(super) struct FakeSocket(pub(super) Framed<TcpStream, Codec>);

/// A request.
#[derive(Debug)]
pub(super) struct FakeRequest {
    /// Request line and headers.
    pub(super) head: String,
    /// The body.
    pub(super) body: Vec<u8>,
}

impl FakeRequest {
    /// The value of a header.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

impl Fake {
    pub(super) async fn start() -> (Self, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (Self(listener), address)
    }

    /// Accepts one connection and makes it a WebSocket.
    pub(super) async fn websocket(&self) -> FakeSocket {
        let (mut stream, _) = self.0.accept().await.unwrap();
        let request = read_request(&mut stream).await;
        let key = request.header("sec-websocket-key").unwrap();
        let accept = hash_key(key.as_bytes());
        let accept = std::str::from_utf8(&accept).unwrap();
        let response = format!(
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
             sec-websocket-accept: {accept}\r\n\r\n"
        );
        stream.write_all(response.as_bytes()).await.unwrap();
        FakeSocket(Framed::new(stream, Codec::new()))
    }

    /// Accepts one connection, answers its request, and tells what it was.
    pub(super) async fn answer(&self, response: &str) -> FakeRequest {
        let (mut stream, _) = self.0.accept().await.unwrap();
        let request = read_request(&mut stream).await;
        stream.write_all(response.as_bytes()).await.unwrap();
        request
    }
}

impl FakeSocket {
    /// The next text, as JSON.
    pub(super) async fn hear(&mut self) -> Value {
        match self.0.next().await {
            Some(Ok(Frame::Text(text))) => serde_json::from_slice(&text).unwrap(),
            other => panic!("expected a text, got {other:?}"),
        }
    }

    /// Sends JSON.
    pub(super) async fn say(&mut self, value: Value) {
        self.0.send(Message::Text(value.to_string().into())).await.unwrap();
    }
}

async fn read_request(stream: &mut TcpStream) -> FakeRequest {
    let mut bytes = Vec::new();
    let end = loop {
        stream.read_buf(&mut bytes).await.unwrap();
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
    };
    let body = bytes.split_off(end);
    let mut request = FakeRequest { head: String::from_utf8(bytes).unwrap(), body };
    let length = request.header("content-length").map_or(0, |text| text.parse().unwrap());
    while request.body.len() < length {
        stream.read_buf(&mut request.body).await.unwrap();
    }
    request
}
