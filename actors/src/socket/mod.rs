//! The WebSocket of a client. The one file that names actix-web-actors.
//!
//! - [`connection`]: a connection from its first request on, and how its socket is taken from HTTP.
//! - [`http_stream`]: its bytes while it speaks HTTP. [`frames`]: its frames after the upgrade.
//! - [`event_stream`]: an endless body, which takes the socket too.

mod connection;
mod event_stream;
mod frames;
mod http_stream;

use std::pin::Pin;
use std::sync::Arc;

use actix::{AsyncContext, StreamHandler};
use actix_http::ws::{Frame, Item};
use actix_web::http::header::{
    CONTENT_LENGTH, HeaderValue, SEC_WEBSOCKET_PROTOCOL, TRANSFER_ENCODING, UPGRADE,
};
use actix_web::{Error, HttpRequest, HttpResponse};
use actix_web_actors::ws;
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, stream};
use state_machine::connection::{CloseReason, ConnectionSeed, Event};
use state_machine::wire::{ClientMessage, InvalidFrame};
use tokio::io::AsyncRead;

use crate::admission::Admission;
use crate::client::{Client, ClientShared, StepObserver, Transport};
use crate::mailbox::MailboxContext;

pub use connection::{HttpOptions, service};
pub use event_stream::EndlessBody;
pub use frames::FrameLimits;

use connection::SharedIo;
use frames::{FrameStream, Received};

/// Frames over a WebSocket.
#[derive(Debug)]
pub struct WebSocket {
    /// The frames so far of a text in several frames.
    parts: Vec<u8>,
    /// The bound of a message in bytes, in one frame or in several.
    message_bytes_max: usize,
    has_subprotocol: bool,
}

/// A client that waits for its socket, in the answer to its request.
struct Session(Client<WebSocket>);

/// The bytes that a session sends.
type Output = Pin<Box<dyn Stream<Item = Result<Bytes, Error>>>>;

/// The subprotocol Firefox offers.
const PROTOCOL: &str = "push-notification";

/// The answer that upgrades a request to a WebSocket. Its client starts when the [`service`] of the connection hands
/// its socket over.
pub fn upgrade(
    shared: Arc<ClientShared>,
    seed: ConnectionSeed,
    admission: Box<dyn Admission>,
    request: &HttpRequest,
) -> Result<HttpResponse, Error> {
    if !takes_socket(request) {
        return Err(ws::HandshakeError::NoWebsocketUpgrade.into());
    }
    let mut answer = ws::handshake_with_protocols(request, &[PROTOCOL])?.finish();
    let has_subprotocol = offers_subprotocol(request);
    let message_bytes_max = shared.frame_limits.bytes_max;
    let transport = WebSocket { parts: Vec::new(), message_bytes_max, has_subprotocol };
    answer.extensions_mut().insert(Session(Client::new(shared, seed, admission, transport)));
    Ok(answer)
}

impl Session {
    /// Starts the client. `bytes` were read with the handshake.
    fn start<T: AsyncRead + Unpin + 'static>(self, io: SharedIo<T>, bytes: BytesMut) -> Output {
        let Self(client) = self;
        let frames = FrameStream::new(io, client.frame_limits(), bytes);
        // The stream of the context itself is empty.
        Box::pin(ws::WebsocketContext::with_factory(stream::empty(), |ctx| {
            ctx.add_stream(frames);
            client
        }))
    }
}

/// Whether actix-http hands the socket of this request over. A body cannot be told from the frames that follow it.
fn takes_socket(request: &HttpRequest) -> bool {
    let headers = request.headers();
    let is_websocket =
        |upgrade: &HeaderValue| upgrade.as_bytes().eq_ignore_ascii_case(b"websocket");
    headers.get(UPGRADE).is_some_and(is_websocket)
        && headers.get(CONTENT_LENGTH).is_none_or(|length| length == "0")
        && !headers.contains_key(TRANSFER_ENCODING)
}

/// Whether the upgrade accepts the subprotocol, which it does if it is offered.
fn offers_subprotocol(request: &HttpRequest) -> bool {
    let offered = request.headers().get(SEC_WEBSOCKET_PROTOCOL);
    let offered = offered.and_then(|names| names.to_str().ok());
    offered.is_some_and(|names| names.split(',').any(|name| name.trim() == PROTOCOL))
}

impl MailboxContext for ws::WebsocketContext<Client<WebSocket>> {
    fn set_mailbox_max(&mut self, max: usize) {
        self.set_mailbox_capacity(max);
    }
}

impl StepObserver for WebSocket {}

impl Transport for WebSocket {
    type Context = ws::WebsocketContext<Client<Self>>;

    fn text(&mut self, ctx: &mut Self::Context, json: String) {
        ctx.text(json);
    }

    fn ping(&mut self, ctx: &mut Self::Context) {
        ctx.ping(b"");
    }

    fn close(&mut self, ctx: &mut Self::Context, reason: CloseReason) {
        if let Some(code) = reason.code_sent(self.has_subprotocol) {
            let description = Some(reason.text().to_owned());
            ctx.close(Some(ws::CloseReason { code: code.into(), description }));
        }
    }
}

impl StreamHandler<Received> for Client<WebSocket> {
    fn handle(&mut self, Received(frame): Received, ctx: &mut Self::Context) {
        let event = match frame {
            Ok(Frame::Text(text)) => received(&text),
            Ok(Frame::Ping(data)) => {
                ctx.pong(&data);
                Event::PeerActive
            }
            Ok(Frame::Pong(_)) => Event::PeerActive,
            Ok(Frame::Binary(_)) => Event::InvalidFrame(InvalidFrame::Binary),
            Ok(Frame::Continuation(part)) => self.transport.take_part(part),
            Err(_) => Event::InvalidFrame(InvalidFrame::Unreadable),
            Ok(Frame::Close(_)) => {
                ctx.close(None);
                Event::SocketClosed
            }
        };
        self.feed(event, ctx);
    }

    fn finished(&mut self, ctx: &mut Self::Context) {
        self.feed(Event::SocketClosed, ctx);
    }
}

/// The context requires it for its own stream, which is empty.
impl StreamHandler<Result<ws::Message, ws::ProtocolError>> for Client<WebSocket> {
    fn handle(&mut self, _: Result<ws::Message, ws::ProtocolError>, _: &mut Self::Context) {}

    fn finished(&mut self, _: &mut Self::Context) {}
}

impl WebSocket {
    /// Takes a part of a message. Returns the message's event once it is whole.
    fn take_part(&mut self, part: Item) -> Event {
        let (bytes, is_last) = match part {
            Item::FirstBinary(_) => return Event::InvalidFrame(InvalidFrame::Binary),
            Item::FirstText(bytes) | Item::Continue(bytes) => (bytes, false),
            Item::Last(bytes) => (bytes, true),
        };
        if self.parts.len() + bytes.len() > self.message_bytes_max {
            return Event::InvalidFrame(InvalidFrame::Unreadable);
        }
        self.parts.extend_from_slice(&bytes);
        if !is_last {
            return Event::PeerActive;
        }
        received(&std::mem::take(&mut self.parts))
    }
}

fn received(text: &[u8]) -> Event {
    let message = std::str::from_utf8(text).map_err(|_| InvalidFrame::Unreadable);
    match message.and_then(ClientMessage::parse) {
        Ok(message) => Event::MessageReceived(message),
        Err(invalid) => Event::InvalidFrame(invalid),
    }
}
