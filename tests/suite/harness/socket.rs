//! A WebSocket for peers that send arbitrary messages.

use std::net::{IpAddr, SocketAddr};

use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use tokio::net::{TcpSocket, TcpStream};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use super::Server;
use super::wait::{AT_ONCE, note, within};

/// A WebSocket after the HTTP upgrade.
pub(crate) struct Socket(WebSocketStream<TcpStream>);

/// The server closed the connection, with this code if its close frame has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Closed(pub(crate) Option<u16>);

/// What Firefox offers. Without it a session that is to reconnect gets no close frame.
const SUBPROTOCOL: (&str, &str) = ("sec-websocket-protocol", "push-notification");

impl Socket {
    pub(crate) async fn open(server: &Server) -> Self {
        Self::try_open(server).await.expect("the server takes connections")
    }

    /// Connects, or fails if the server is down.
    pub(crate) async fn try_open(server: &Server) -> Result<Self, Error> {
        within(AT_ONCE, "a WebSocket opens", Self::open_untimed(server.address())).await
    }

    /// Connects with additional headers in the upgrade request. The server must accept no extension.
    pub(crate) async fn open_with(
        server: &Server,
        headers: &[(&'static str, &'static str)],
    ) -> Self {
        let stream = TcpStream::connect(server.address()).await.expect("the server is there");
        let upgrade = client_async(upgrade_request(server.address(), headers), stream);
        let upgrade = within(AT_ONCE, "a WebSocket opens", upgrade);
        let (socket, response) = upgrade.await.expect("the server takes connections");
        assert_eq!(response.headers().get("sec-websocket-extensions"), None);
        Self(socket)
    }

    /// Connects to an address without a time limit, or fails if no server listens there.
    pub(crate) async fn open_untimed(address: SocketAddr) -> Result<Self, Error> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Self::over(stream, address).await
    }

    /// Connects at another path than `/`.
    pub(crate) async fn open_at(server: &Server, path: &str) -> Result<Self, Error> {
        let stream = TcpStream::connect(server.address()).await?;
        let mut request = upgrade_request(server.address(), &[SUBPROTOCOL]);
        *request.uri_mut() = format!("ws://{}{path}", server.address()).parse().expect("a URL");
        let upgrade = client_async(request, stream);
        let (socket, _) = within(AT_ONCE, "the server answers", upgrade).await?;
        Ok(Self(socket))
    }

    /// Connects like an agent of this address behind a proxy.
    pub(crate) async fn open_from(server: SocketAddr, address: IpAddr) -> Result<Self, Error> {
        let stream = TcpStream::connect(server).await?;
        let address = address.to_string();
        let headers = [SUBPROTOCOL, ("x-forwarded-for", &*address)];
        let upgrade = client_async(upgrade_request(server, &headers), stream);
        let (socket, _) = within(AT_ONCE, "the server answers", upgrade).await?;
        Ok(Self(socket))
    }

    /// Connects with the smallest receive buffer.
    pub(crate) async fn with_small_buffer(server: &Server) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket can be made");
        socket.set_recv_buffer_size(4096).expect("a socket has a buffer");
        let stream = socket.connect(server.address()).await.expect("the server takes connections");
        let upgraded = within(AT_ONCE, "a WebSocket opens", Self::over(stream, server.address()));
        upgraded.await.expect("the server takes connections")
    }

    async fn over(stream: TcpStream, address: SocketAddr) -> Result<Self, Error> {
        let (socket, _) = client_async(upgrade_request(address, &[SUBPROTOCOL]), stream).await?;
        Ok(Self(socket))
    }

    pub(crate) async fn send(&mut self, message: Message) -> Result<(), Error> {
        within(AT_ONCE, "the server reads", self.0.send(message)).await
    }

    /// Sends JSON. An error is ignored, because the next [`receive`](Self::receive) returns it.
    pub(crate) async fn send_json(&mut self, json: &Value) {
        let _ = self.send(Message::text(json.to_string())).await;
    }

    /// Sends a ping, and waits for the pong with its payload.
    pub(crate) async fn ping(&mut self, payload: &'static [u8]) {
        self.send(Message::Ping(payload.into())).await.expect("the server is there");
        let pong = within(AT_ONCE, "a pong arrives", self.0.next()).await;
        assert_eq!(
            pong.expect("the server is there").expect("a frame"),
            Message::Pong(payload.into())
        );
    }

    /// Waits for the next text frame, at most [`AT_ONCE`], and parses it as JSON.
    pub(crate) async fn receive(&mut self) -> Result<Value, Closed> {
        within(AT_ONCE, "a message arrives", self.receive_untimed()).await
    }

    /// Discards messages up to the close frame or the end of the connection.
    pub(crate) async fn closed(&mut self) -> Closed {
        let closed = async {
            loop {
                if let Err(closed) = self.receive_untimed().await {
                    return closed;
                }
            }
        };
        within(AT_ONCE, "the server closes the connection", closed).await
    }

    /// Waits for the end of the TCP connection, which must follow the close frame soon.
    pub(crate) async fn ended(mut self) {
        let end = async { while let Some(Ok(_)) = self.0.next().await {} };
        within(AT_ONCE, "the server closes the TCP connection", end).await;
    }

    pub(crate) fn stream(&mut self) -> &mut TcpStream {
        self.0.get_mut()
    }

    /// The next text frame as JSON, without a time limit.
    pub(crate) async fn receive_untimed(&mut self) -> Result<Value, Closed> {
        loop {
            match self.0.next().await {
                Some(Ok(Message::Text(text))) => {
                    note(&text);
                    return Ok(serde_json::from_str(&text).expect("the server sends JSON"));
                }
                Some(Ok(Message::Close(frame))) => {
                    return Err(Closed(frame.map(|frame| frame.code.into())));
                }
                // tungstenite answers pings itself.
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(other)) => panic!("the server sent {other:?}"),
                Some(Err(_)) | None => return Err(Closed(None)),
            }
        }
    }
}

fn upgrade_request(address: SocketAddr, headers: &[(&'static str, &str)]) -> Request {
    let mut request = format!("ws://{address}/").into_client_request().expect("it is a URL");
    for (name, value) in headers {
        request.headers_mut().insert(*name, HeaderValue::from_str(value).expect("it is ASCII"));
    }
    request
}
