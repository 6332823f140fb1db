//! The WebSocket of a client. The one file that names actix-web-actors.

use std::any::Any;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use actix::{AsyncContext, StreamHandler};
use actix_http::ws::{Frame, Item, ProtocolError};
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

use super::frames::FrameStream;
use super::io::Socket;
use super::taken_socket::Output;
use crate::admission::Admission;
use crate::client::{Client, ClientShared, StepObserver, Transport};
use crate::handle::{ClientMail, ClientMailbox, Inbox};

/// Frames over a WebSocket.
pub struct WebSocket {
    /// None until the upgrade.
    pub(super) socket: Option<Rc<Socket<dyn Any>>>,
    /// The frames so far of a text in several frames, which are rare.
    pub(super) parts: Option<Box<Parts>>,
    pub(super) has_subprotocol: bool,
}

#[derive(Default)]
pub(super) struct Parts(pub(super) Vec<u8>);

/// What a client handles: its mail, and then the frames of its peer.
///
/// One stream for both: an actor has room for three futures before it allocates some for eight, and two are for
/// operations of the store.
struct Incoming<T> {
    inbox: Inbox,
    frames: FrameStream<T>,
}

enum Arrived {
    Mail(ClientMail),
    Frame(Result<Frame, ProtocolError>),
}

/// A client that waits for its socket, in the answer to its request.
pub(super) struct Session(Client<WebSocket>);

/// The end of a client, which writes to its socket itself.
struct ClientOutput<S> {
    context: S,
    mailbox: Arc<ClientMailbox>,
    must_end: bool,
}

/// The subprotocol Firefox offers.
const PROTOCOL: &str = "push-notification";

/// The answer that upgrades a request to a WebSocket. Its client starts when the [`service`](super::service) of the connection hands
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
    let transport = WebSocket { socket: None, parts: None, has_subprotocol };
    answer.extensions_mut().insert(Session(Client::new(shared, seed, admission, transport)));
    Ok(answer)
}

impl Session {
    /// Starts the client. `bytes` were read with the handshake.
    pub(super) fn start<T: AsyncRead + Unpin + 'static>(
        self,
        socket: &Rc<Socket<T>>,
        bytes: BytesMut,
    ) -> impl Output + use<T> {
        let Self(mut client) = self;
        let inbox = client.take_inbox();
        let mailbox = Arc::clone(&inbox.0);
        let frames = FrameStream::new(Rc::clone(socket), client.frame_limits(), bytes);
        client.transport.socket = Some(Rc::clone(socket) as _);
        // The stream of the context itself is empty.
        let context = ws::WebsocketContext::with_factory(stream::empty(), |ctx| {
            ctx.add_stream(Incoming { inbox, frames });
            client
        });
        ClientOutput { context, mailbox, must_end: false }
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

impl StepObserver for WebSocket {}

impl Transport for WebSocket {
    type Context = ws::WebsocketContext<Client<Self>>;

    fn text(&mut self, _: &mut Self::Context, json: String) {
        self.send(ws::Message::Text(json.into()));
    }

    fn ping(&mut self, _: &mut Self::Context) {
        self.send(ws::Message::Ping(Bytes::new()));
    }

    fn close(&mut self, _: &mut Self::Context, reason: CloseReason) {
        if let Some(code) = reason.code_sent(self.has_subprotocol) {
            let description = Some(reason.text().to_owned());
            self.send(ws::Message::Close(Some(ws::CloseReason { code: code.into(), description })));
        }
    }
}

impl<S: Stream + Unpin> Stream for ClientOutput<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        Pin::new(&mut self.context).poll_next(cx)
    }
}

impl<S: Stream<Item = Result<Bytes, Error>> + Unpin> Output for ClientOutput<S> {
    fn must_end(&mut self, cx: &mut Context<'_>) -> bool {
        self.must_end = self.must_end || self.mailbox.poll_must_end(cx);
        self.must_end
    }
}

impl<T: AsyncRead + Unpin> Stream for Incoming<T> {
    type Item = Arrived;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Arrived>> {
        if let Poll::Ready(mail) = Pin::new(&mut self.inbox).poll_next(cx) {
            return Poll::Ready(mail.map(Arrived::Mail));
        }
        Pin::new(&mut self.frames).poll_next(cx).map(|frame| frame.map(Arrived::Frame))
    }
}

impl StreamHandler<Arrived> for Client<WebSocket> {
    fn handle(&mut self, arrived: Arrived, ctx: &mut Self::Context) {
        let frame = match arrived {
            Arrived::Mail(mail) => return StreamHandler::<ClientMail>::handle(self, mail, ctx),
            Arrived::Frame(frame) => frame,
        };
        let event = match frame {
            Ok(Frame::Text(text)) => received(&text),
            Ok(Frame::Ping(data)) => {
                self.transport.send(ws::Message::Pong(data));
                Event::PeerActive
            }
            Ok(Frame::Pong(_)) => Event::PeerActive,
            Ok(Frame::Binary(_)) => Event::InvalidFrame(InvalidFrame::Binary),
            Ok(Frame::Continuation(part)) => {
                let bytes_max = self.frame_limits().bytes_max;
                self.transport.take_part(part, bytes_max)
            }
            Err(_) => Event::InvalidFrame(InvalidFrame::Unreadable),
            Ok(Frame::Close(_)) => {
                self.transport.send(ws::Message::Close(None));
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
impl StreamHandler<Result<ws::Message, ProtocolError>> for Client<WebSocket> {
    fn handle(&mut self, _: Result<ws::Message, ProtocolError>, _: &mut Self::Context) {}

    fn finished(&mut self, _: &mut Self::Context) {}
}

impl WebSocket {
    fn send(&self, message: ws::Message) {
        if let Some(socket) = &self.socket {
            socket.send(message);
        }
    }

    /// Takes a part of a message of up to `bytes_max`. Returns the message's event once it is whole.
    pub(super) fn take_part(&mut self, part: Item, bytes_max: usize) -> Event {
        let (bytes, is_last) = match part {
            Item::FirstBinary(_) => return Event::InvalidFrame(InvalidFrame::Binary),
            Item::FirstText(bytes) | Item::Continue(bytes) => (bytes, false),
            Item::Last(bytes) => (bytes, true),
        };
        let mut parts = self.parts.take().unwrap_or_default();
        if parts.0.len() + bytes.len() > bytes_max {
            return Event::InvalidFrame(InvalidFrame::Unreadable);
        }
        parts.0.extend_from_slice(&bytes);
        if is_last {
            return received(&parts.0);
        }
        self.parts = Some(parts);
        Event::PeerActive
    }
}

pub(super) fn received(text: &[u8]) -> Event {
    let message = std::str::from_utf8(text).map_err(|_| InvalidFrame::Unreadable);
    match message.and_then(ClientMessage::parse) {
        Ok(message) => Event::MessageReceived(message),
        Err(invalid) => Event::InvalidFrame(invalid),
    }
}
