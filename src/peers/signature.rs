//! Authentication between nodes: requests and answers are signed with a cluster key.
//!
//! The signed text is specified in `docs/protocol.md`, "Between nodes". A request is signed for one
//! node and one time, so that it is invalid elsewhere and later. An answer is signed for one
//! request and with its key, so that it is valid while a key is replaced.
//!
//! Requests and answers are not encrypted.

#[cfg(test)]
mod tests;

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use state_machine::{NodeId, Span, Time};

use crate::keys::{Keys, MAC_BYTES, MacKeys, NotOurs};

/// The header with the signature of an answer.
pub const ANSWER_MAC_HEADER: &str = "kalends-mac";

/// The first lines of signed texts.
const REQUEST_LINE: &str = "kalends node request 1";
const ANSWER_LINE: &str = "kalends node answer 1";

/// Length of a signature in base64url without padding.
const MAC_TEXT_BYTES: usize = 43;

/// The keys with which the nodes of a cluster sign: the first signs, all verify.
pub struct ClusterKeys {
    requests: MacKeys,
    answers: MacKeys,
}

/// The signed parts of a request.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    pub method: &'a str,
    /// Path and query as they are sent.
    pub path: &'a str,
    /// The node that receives the request.
    pub node: &'a NodeId,
    pub body: &'a [u8],
}

/// The `authorization` header of a request: well-formed and of this time, and not verified yet.
#[derive(Debug, Clone, Copy)]
pub struct Signature {
    time: Time,
    mac: [u8; MAC_BYTES],
}

/// The signature of a request, which is part of the signed text of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestMac {
    mac: [u8; MAC_BYTES],
    /// Index of the key that signed.
    key: usize,
}

/// Why the signature of a request is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The header is missing or malformed.
    #[error("the request is not signed")]
    Unsigned,
    #[error(
        "the signature is by another cluster key, for another node or for another request: every node needs the same \
         cluster_keys, and its own router_url"
    )]
    NotOurs,
    /// The time is too far from the clock of this node.
    #[error(
        "the request was signed {0} away from this node's clock: set the clocks of all nodes, or raise \
         cluster_clock_skew_s"
    )]
    OtherTime(Span),
}

impl ClusterKeys {
    /// None if the installation has no cluster keys.
    pub fn derive(keys: &Keys) -> Option<Self> {
        let derive = |purpose| MacKeys::derive(keys.cluster_keys(), purpose, b"");
        (!keys.cluster_keys().is_empty())
            .then(|| Self { requests: derive("node request"), answers: derive("node answer") })
    }

    /// Signs a request sent at `now`: its `authorization` header, and what verifies its answer.
    pub fn sign(&self, request: &Request<'_>, now: Time) -> (String, RequestMac) {
        let mac = self.requests.sign(&request.text(now));
        let header = format!("Kalends t={} mac={}", now.0, URL_SAFE_NO_PAD.encode(mac));
        (header, RequestMac { mac, key: 0 })
    }

    /// Verifies the signature of a request.
    pub fn verify(
        &self,
        request: &Request<'_>,
        signature: &Signature,
    ) -> Result<RequestMac, Refused> {
        let Signature { time, mac } = *signature;
        let key = self.requests.signer(&request.text(time), &mac).ok_or(Refused::NotOurs)?;
        Ok(RequestMac { mac, key })
    }

    /// The `kalends-mac` header of an answer.
    pub fn sign_answer(&self, request: &RequestMac, status: u16) -> String {
        let mac = self.answers.sign_with(request.key, &answer_text(request, status));
        URL_SAFE_NO_PAD.encode(mac)
    }

    /// Verifies the `kalends-mac` header of an answer.
    pub fn verify_answer(
        &self,
        request: &RequestMac,
        status: u16,
        header: &str,
    ) -> Result<(), NotOurs> {
        let mac = decode_mac(header).ok_or(NotOurs)?;
        self.answers.verify(&answer_text(request, status), &mac)
    }
}

impl fmt::Debug for ClusterKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKeys(redacted)")
    }
}

impl Signature {
    /// Reads an `authorization` header received at `now`; the clocks may differ by `skew`. It needs no
    /// body, so that a request without a signature is refused before its body is read.
    pub fn read(header: &str, now: Time, skew: Span) -> Result<Self, Refused> {
        let signature = Self::parse(header).ok_or(Refused::Unsigned)?;
        let apart = now.since(signature.time).max(signature.time.since(now));
        if apart > skew { Err(Refused::OtherTime(apart)) } else { Ok(signature) }
    }

    fn parse(header: &str) -> Option<Self> {
        let (text, mac) = header.strip_prefix("Kalends t=")?.split_once(" mac=")?;
        let time: u64 = text.parse().ok()?;
        // A sign or a leading zero would be another spelling.
        let is_plain = time > 0 && time.to_string() == text;
        is_plain.then_some(Self { time: Time(time), mac: decode_mac(mac)? })
    }
}

impl Request<'_> {
    /// The signed text. Only the body, which is last, may contain line ends.
    fn text(&self, time: Time) -> Vec<u8> {
        let Self { method, path, node, body } = self;
        let head = format!("{REQUEST_LINE}\n{method}\n{path}\n{node}\n{}\n", time.0);
        [head.as_bytes(), body].concat()
    }
}

fn answer_text(request: &RequestMac, status: u16) -> Vec<u8> {
    let mac = URL_SAFE_NO_PAD.encode(request.mac);
    format!("{ANSWER_LINE}\n{mac}\n{status}").into_bytes()
}

fn decode_mac(text: &str) -> Option<[u8; MAC_BYTES]> {
    let mut mac = [0; MAC_BYTES];
    if text.len() != MAC_TEXT_BYTES {
        return None;
    }
    let length = URL_SAFE_NO_PAD.decode_slice(text, &mut mac).ok()?;
    (length == MAC_BYTES).then_some(mac)
}
