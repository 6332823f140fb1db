//! A WebSocket to the server, of a peer that says whatever a test likes.

use std::net::SocketAddr;

use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use tokio::net::{TcpSocket, TcpStream};
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use super::Server;
use super::wait::{AT_ONCE, within};

/// A WebSocket on which nothing was said yet.
pub(crate) struct Socket(WebSocketStream<TcpStream>);

/// The server closed the connection; with which code, if it sent a close frame with one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Closed(pub(crate) Option<u16>);

impl Socket {
    /// Connects.
    pub(crate) async fn open(server: &Server) -> Self {
        Self::try_open(server).await.expect("the server takes connections")
    }

    /// Connects, if the server is there.
    pub(crate) async fn try_open(server: &Server) -> Result<Self, Error> {
        within(AT_ONCE, "a WebSocket opens", Self::open_ever(server.address())).await
    }

    /// Connects to an address, however long it takes, if a server is there.
    pub(crate) async fn open_ever(address: SocketAddr) -> Result<Self, Error> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Self::over(stream, address).await
    }

    /// Connects, and keeps next to nothing that was not read on our side.
    pub(crate) async fn narrow(server: &Server) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket can be made");
        socket.set_recv_buffer_size(4096).expect("a socket has a buffer");
        let stream = socket.connect(server.address()).await.expect("the server takes connections");
        let upgraded = within(AT_ONCE, "a WebSocket opens", Self::over(stream, server.address()));
        upgraded.await.expect("the server takes connections")
    }

    async fn over(stream: TcpStream, address: SocketAddr) -> Result<Self, Error> {
        let (socket, _) = client_async(format!("ws://{address}/"), stream).await?;
        Ok(Self(socket))
    }

    /// Sends a frame.
    pub(crate) async fn send(&mut self, message: Message) -> Result<(), Error> {
        within(AT_ONCE, "the server reads", self.0.send(message)).await
    }

    /// Sends JSON. Where the server is gone, the next [`hear`](Self::hear) will tell.
    pub(crate) async fn say(&mut self, json: &Value) {
        let _ = self.send(Message::text(json.to_string())).await;
    }

    /// The next text frame, as JSON.
    pub(crate) async fn hear(&mut self) -> Result<Value, Closed> {
        within(AT_ONCE, "the server says something", self.hear_ever()).await
    }

    /// Reads up to the close frame, or the end where there is none, and throws away what comes
    /// until then.
    pub(crate) async fn closed(&mut self) -> Closed {
        loop {
            if let Err(closed) = self.hear().await {
                return closed;
            }
        }
    }

    /// Waits for the end of the TCP connection, which must follow the close frame soon.
    pub(crate) async fn ended(mut self) {
        let end = async { while let Some(Ok(_)) = self.0.next().await {} };
        within(AT_ONCE, "the server closes the TCP connection", end).await;
    }

    /// The stream below.
    pub(crate) fn stream(&mut self) -> &mut TcpStream {
        self.0.get_mut()
    }

    /// The next text frame, as JSON, however long it takes.
    pub(crate) async fn hear_ever(&mut self) -> Result<Value, Closed> {
        loop {
            match self.0.next().await {
                Some(Ok(Message::Text(text))) => {
                    return Ok(serde_json::from_str(&text).expect("the server says JSON"));
                }
                Some(Ok(Message::Close(frame))) => {
                    return Err(Closed(frame.map(|frame| frame.code.into())));
                }
                // tungstenite answers pings by itself.
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(other)) => panic!("the server sent {other:?}"),
                Some(Err(_)) | None => return Err(Closed(None)),
            }
        }
    }
}
