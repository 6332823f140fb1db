//! A WebSocket client frame by frame: it answers no ping by itself, and reads only on request.

use std::io::Cursor;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::net::TcpStream;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Control, Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::frame::{CloseFrame, Frame, FrameHeader};

use super::metered::{Metered, Traffic};

/// The user agent's end of a WebSocket.
pub(crate) struct Peer {
    pub(crate) speaker: Speaker,
    pub(crate) listener: Listener,
    pub(crate) traffic: Traffic,
}

pub(crate) struct Speaker(WriteHalf<Metered>);

pub(crate) struct Listener {
    input: ReadHalf<Metered>,
    buffer: BytesMut,
}

/// What a server sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Heard {
    Text(String),
    Ping,
    Pong(Bytes),
    /// With the code and the reason, if there was one.
    Close(Option<(u16, String)>),
    End,
}

impl Peer {
    /// The opening handshake (RFC 6455 §4), as Firefox does it if there is a subprotocol.
    pub(super) async fn upgrade(
        stream: TcpStream,
        traffic: Traffic,
        subprotocol: Option<&str>,
    ) -> Self {
        let mut request = "ws://127.0.0.1/".into_client_request().unwrap();
        if let Some(name) = subprotocol {
            request.headers_mut().insert("Sec-WebSocket-Protocol", name.parse().unwrap());
        }
        let (socket, _) = client_async(request, traffic.of_peer(stream)).await.unwrap();
        // The server speaks only when it was spoken to: nothing was read beyond the handshake.
        let (input, output) = split(socket.into_inner());
        let listener = Listener { input, buffer: BytesMut::new() };
        Self { speaker: Speaker(output), listener, traffic }
    }
}

impl Speaker {
    pub(crate) async fn say(&mut self, text: &str) {
        self.send(Frame::message(text.to_owned(), OpCode::Data(Data::Text), true)).await;
    }

    pub(crate) async fn binary(&mut self) {
        self.send(Frame::message("binary", OpCode::Data(Data::Binary), true)).await;
    }

    pub(crate) async fn pong(&mut self) {
        self.send(Frame::pong("")).await;
    }

    pub(crate) async fn ping(&mut self, payload: &'static str) {
        self.send(Frame::ping(payload)).await;
    }

    pub(crate) async fn close(&mut self) {
        let (code, reason) = (CloseCode::Normal, "".into());
        self.send(Frame::close(Some(CloseFrame { code, reason }))).await;
    }

    async fn send(&mut self, mut frame: Frame) {
        frame.header_mut().mask = Some([1, 2, 3, 4]);
        let mut bytes = Vec::new();
        frame.format(&mut bytes).unwrap();
        // Where the server is gone, reading shows it.
        drop(self.0.write_all(&bytes).await);
    }
}

impl Listener {
    pub(crate) async fn hear(&mut self) -> Heard {
        loop {
            if let Some((opcode, payload)) = self.take_frame() {
                return heard(opcode, payload);
            }
            if let Ok(0) | Err(_) = self.input.read_buf(&mut self.buffer).await {
                return Heard::End;
            }
        }
    }

    fn take_frame(&mut self) -> Option<(OpCode, Bytes)> {
        let mut cursor = Cursor::new(&self.buffer[..]);
        let (header, payload_bytes) = FrameHeader::parse(&mut cursor).unwrap()?;
        assert!(header.mask.is_none() && header.is_final, "a server neither masks nor splits");
        let (head_bytes, payload_bytes) = (cursor.position() as usize, payload_bytes as usize);
        if self.buffer.len() < head_bytes + payload_bytes {
            return None;
        }
        self.buffer.advance(head_bytes);
        Some((header.opcode, self.buffer.split_to(payload_bytes).freeze()))
    }
}

fn heard(opcode: OpCode, mut payload: Bytes) -> Heard {
    let text = |bytes: Bytes| String::from_utf8(bytes.into()).unwrap();
    match opcode {
        OpCode::Data(Data::Text) => Heard::Text(text(payload)),
        OpCode::Control(Control::Ping) => Heard::Ping,
        OpCode::Control(Control::Pong) => Heard::Pong(payload),
        OpCode::Control(Control::Close) if payload.is_empty() => Heard::Close(None),
        OpCode::Control(Control::Close) => Heard::Close(Some((payload.get_u16(), text(payload)))),
        other => panic!("a server does not send {other}"),
    }
}
