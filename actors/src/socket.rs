//! The WebSocket of a client. The one file that names actix-web-actors.

use std::rc::Rc;
use std::sync::Arc;

use actix::StreamHandler;
use actix_http::ws::Item;
use actix_web::http::header::SEC_WEBSOCKET_PROTOCOL;
use actix_web::web::Payload;
use actix_web::{Error, HttpRequest, HttpResponse};
use actix_web_actors::ws;
use state_machine::connection::{CloseReason, ConnectionSeed, Event};
use state_machine::wire::{ClientMessage, InvalidFrame};

use crate::admission::Admission;
use crate::client::{Client, ClientShared, StepObserver, Transport};
use crate::frame_limiter::{FramesHandled, LimitedStream};
use crate::mailbox::MailboxContext;

/// Frames over a WebSocket.
#[derive(Debug)]
pub struct WebSocket {
    /// The frames so far of a text in several frames.
    parts: Vec<u8>,
    /// The bound of a message in bytes, in one frame or in several.
    message_bytes_max: usize,
    /// Frames handled so far: the limiter lets no chunk through while frames wait.
    handled: FramesHandled,
    has_subprotocol: bool,
}

/// The subprotocol Firefox offers.
const PROTOCOL: &str = "push-notification";

/// Upgrades a request to a WebSocket and starts its client. A message of the agent has at most
/// `message_bytes_max` bytes.
pub fn upgrade(
    shared: Arc<ClientShared>,
    seed: ConnectionSeed,
    admission: Box<dyn Admission>,
    message_bytes_max: usize,
    request: &HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let handled = FramesHandled::default();
    let bytes = LimitedStream::new(payload, message_bytes_max, Rc::clone(&handled));
    let has_subprotocol = offers_subprotocol(request);
    let transport = WebSocket { parts: Vec::new(), message_bytes_max, handled, has_subprotocol };
    let client = Client::new(shared, seed, admission, transport);
    ws::WsResponseBuilder::new(client, request, bytes)
        .protocols(&[PROTOCOL])
        .frame_size(message_bytes_max)
        .start()
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

impl StreamHandler<Result<ws::Message, ws::ProtocolError>> for Client<WebSocket> {
    fn handle(&mut self, frame: Result<ws::Message, ws::ProtocolError>, ctx: &mut Self::Context) {
        self.transport.handled.set(self.transport.handled.get() + 1);
        let event = match frame {
            Ok(ws::Message::Text(text)) => received(&text),
            Ok(ws::Message::Ping(data)) => {
                ctx.pong(&data);
                Event::PeerActive
            }
            Ok(ws::Message::Pong(_) | ws::Message::Nop) => Event::PeerActive,
            Ok(ws::Message::Binary(_)) => Event::InvalidFrame(InvalidFrame::Binary),
            Ok(ws::Message::Continuation(part)) => self.transport.take_part(part),
            Err(_) => Event::InvalidFrame(InvalidFrame::Unreadable),
            Ok(ws::Message::Close(_)) => {
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
        let whole = std::mem::take(&mut self.parts);
        match std::str::from_utf8(&whole) {
            Ok(text) => received(text),
            Err(_) => Event::InvalidFrame(InvalidFrame::Unreadable),
        }
    }
}

fn received(text: &str) -> Event {
    match ClientMessage::parse(text) {
        Ok(message) => Event::MessageReceived(message),
        Err(nonsense) => Event::InvalidFrame(nonsense),
    }
}

#[cfg(test)]
mod tests {
    use actix_codec::Decoder;
    use actix_http::ws::{Codec, Frame};
    use bytes::{Bytes, BytesMut};

    use super::*;
    use crate::frame_limiter::FrameParser;
    use crate::fuzz::fuzz;

    const MESSAGE_BYTES_MAX: usize = 200;

    /// How many bytes arrive at once.
    const CHUNK_BYTES: usize = 50;

    /// Two bytes, a length of 8, a mask of 4.
    const HEAD_BYTES_MAX: usize = 14;

    /// Two texts, one in three parts with a ping between, a pong, and a close.
    const STREAM: &[u8] =
        b"\x81\x94\x01\x02\x03\x04z fbrqbceWzrd!>#ig&|\x01\x81\0\0\0\0{\x89\x80\0\0\0\0\
        \x00\x80\0\0\0\0\x80\x81\0\0\0\0}\x8a\x81\0\0\0\0a\x88\x82\0\0\0\0\x03\xe8";

    #[test]
    fn no_hostile_bytes_panic_or_are_kept_beyond_the_limit() {
        let text = |length: u8| {
            [&[0x81, 0xfe, 0, length, 0, 0, 0, 0], vec![b' '; usize::from(length)].as_slice()]
                .concat()
        };
        let (longest, too_long) =
            (text(MESSAGE_BYTES_MAX as u8), text(MESSAGE_BYTES_MAX as u8 + 15));
        fuzz("websocket_frames", &[STREAM, &longest, &too_long], |bytes| {
            let mut socket = WebSocket {
                parts: Vec::new(),
                message_bytes_max: MESSAGE_BYTES_MAX,
                handled: FramesHandled::default(),
                has_subprotocol: true,
            };
            let mut parser = FrameParser::new(MESSAGE_BYTES_MAX);
            let (mut codec, mut waiting) =
                (Codec::new().max_size(MESSAGE_BYTES_MAX), BytesMut::new());
            for chunk in bytes.chunks(CHUNK_BYTES) {
                let Ok(chunk) = parser.check(Ok(Bytes::copy_from_slice(chunk))) else { return };
                waiting.extend_from_slice(&chunk);
                loop {
                    match codec.decode(&mut waiting) {
                        Ok(Some(Frame::Continuation(part))) => drop(socket.take_part(part)),
                        Ok(Some(Frame::Text(text))) => _ = std::str::from_utf8(&text).map(received),
                        Ok(Some(_)) => {}
                        Ok(None) => break,
                        Err(_) => return,
                    }
                }
                assert!(waiting.len() < HEAD_BYTES_MAX + MESSAGE_BYTES_MAX);
                assert!(socket.parts.len() <= MESSAGE_BYTES_MAX);
            }
        });
    }
}
