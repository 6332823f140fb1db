//! The client programs, as far as a server can tell them apart.

use serde_json::{Value, json};

use crate::harness::Closed;

/// A client program: what it sends, and when.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) name: &'static str,
    /// The headers of its upgrade request besides those that RFC 6455 requires.
    pub(super) headers: &'static [(&'static str, &'static str)],
    /// Whether it is on OkHttp, which is deaf after a close frame and notices the end of TCP at once.
    pub(super) is_on_okhttp: bool,
    /// Whether it fails on a register that is refused without a `pushEndpoint`, and registers again.
    pub(super) requires_endpoint: bool,
    /// Its `hello`, with the uaid it has, if any, and its channels.
    pub(super) hello: fn(Option<&str>, &[String]) -> Value,
    /// Whether each of its channels belongs to a VAPID key.
    pub(super) requires_key: bool,
    pub(super) keepalive: Keepalive,
    pub(super) acks: Acks,
}

/// What a program sends so that its connection stays open.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Keepalive {
    /// It answers the pings of the server.
    Answers,
    /// A WebSocket ping, which must be answered with its payload.
    Ping,
    /// A WebSocket ping, and the message `{}`. Each `{}` that it receives is answered with one.
    PingAndEmptyMessage,
}

/// Which notifications a program acks, and how.
#[derive(Debug)]
pub(super) struct Acks {
    /// The `code` of an ack, if it has one.
    pub(super) code: Option<u16>,
    /// Whether a push without a body is acked.
    pub(super) covers_empty: bool,
    /// Whether acks are collected and sent together.
    pub(super) are_batched: bool,
}

pub(super) const FIREFOX: Program = Program {
    name: "Firefox",
    headers: &[("sec-websocket-protocol", "push-notification")],
    is_on_okhttp: false,
    requires_endpoint: false,
    hello: |uaid, _| {
        let (use_webpush, broadcasts) = (true, json!({}));
        match uaid {
            Some(uaid) => json!({"messageType": "hello", "broadcasts": broadcasts,
                "use_webpush": use_webpush, "uaid": uaid}),
            None => json!({"messageType": "hello", "broadcasts": broadcasts,
                "use_webpush": use_webpush}),
        }
    },
    requires_key: false,
    keepalive: Keepalive::Answers,
    acks: Acks { code: Some(100), covers_empty: true, are_batched: false },
};

pub(super) const SUNUP: Program = Program {
    name: "Sunup",
    headers: &[("sec-websocket-extensions", "permessage-deflate")],
    is_on_okhttp: true,
    requires_endpoint: true,
    hello: |uaid, _| json!({"messageType": "hello", "uaid": uaid}),
    requires_key: false,
    keepalive: Keepalive::PingAndEmptyMessage,
    acks: Acks { code: None, covers_empty: false, are_batched: false },
};

/// A fork of Sunup.
pub(super) const PRISM: Program = Program { name: "Prism", ..SUNUP };

/// The distributor of KDE, on `QWebSocket`.
pub(super) const KUNIFIEDPUSH: Program = Program {
    name: "KUnifiedPush",
    headers: &[],
    is_on_okhttp: false,
    requires_endpoint: false,
    hello: |uaid, _| match uaid {
        Some(uaid) => json!({"messageType": "hello", "uaid": uaid}),
        None => json!({"messageType": "hello"}),
    },
    requires_key: false,
    keepalive: Keepalive::Ping,
    acks: Acks { code: None, covers_empty: true, are_batched: false },
};

/// The library of Bitwarden's clients.
pub(super) const AUTOPUSH_MANAGER: Program = Program {
    name: "autopush-manager",
    headers: &[],
    is_on_okhttp: false,
    requires_endpoint: false,
    hello: |uaid, channels| {
        json!({"messageType": "hello", "uaid": uaid.unwrap_or_default(), "channelIDs": channels,
            "use_webpush": true})
    },
    requires_key: true,
    keepalive: Keepalive::Answers,
    acks: Acks { code: Some(100), covers_empty: true, are_batched: true },
};

pub(super) const ALL: [&Program; 5] = [&FIREFOX, &SUNUP, &PRISM, &KUNIFIEDPUSH, &AUTOPUSH_MANAGER];

impl Program {
    /// How it learns of the end of a session after which it is to reconnect, whose close code would be `code`.
    pub(super) fn parting(&self, code: u16) -> Closed {
        let offers_subprotocol =
            self.headers.iter().any(|(name, _)| *name == "sec-websocket-protocol");
        assert!(!(self.is_on_okhttp && offers_subprotocol), "it would get a close frame");
        Closed(offers_subprotocol.then_some(code))
    }
}
