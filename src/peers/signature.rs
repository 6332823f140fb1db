//! How nodes know each other: each request and each answer between them carries a signature that only the
//! holders of a cluster key can make.
//!
//! What is signed is text, and is the same on both sides: see `docs/protocol.md`, "Between nodes". A request is signed
//! for one node at one time, so that it is nothing elsewhere or later. An answer is signed for one request, so that it
//! is no answer to another; with the key that the request was signed with, so that nodes understand each
//! other while a key is being replaced.
//!
//! Nothing here is encrypted.

#[cfg(test)]
mod tests;

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use state_machine::{NodeId, Span, Time};

use crate::keys::{Keys, MAC_BYTES, MacKeys};

/// The header of an answer that its signature stands in.
pub const ANSWER_MAC_HEADER: &str = "kalends-mac";

/// The first line of everything that is signed.
const REQUEST_LINE: &str = "kalends node request 1";
const ANSWER_LINE: &str = "kalends node answer 1";

const REQUEST_PURPOSE: &str = "node request";
const ANSWER_PURPOSE: &str = "node answer";

/// How long a signature is as text: base64url without padding.
const MAC_TEXT_BYTES: usize = 43;

/// Digits of the greatest time.
const TIME_DIGITS_MAX: usize = 20;

/// The keys that the nodes of a cluster sign for each other with: the first signs, all verify.
pub struct ClusterKeys {
    requests: MacKeys,
    answers: MacKeys,
}

/// A request, as far as it is signed.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// `PUT` or `DELETE`.
    pub method: &'a str,
    /// The path with all that is behind it, as it is sent.
    pub path: &'a str,
    /// The node that it is for.
    pub node: &'a NodeId,
    /// The whole body.
    pub body: &'a [u8],
}

/// The signature of one request, which its answer is signed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestMac {
    mac: [u8; MAC_BYTES],
    /// Which of the keys signed it.
    key: usize,
}

/// Why a request is not taken for one of another node's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The header is not there, or is something else.
    #[error("the request is not signed")]
    Unsigned,
    /// None of the keys signed this.
    #[error(
        "the signature is by another cluster key, for another node or for another request: every node needs the same \
         cluster_keys, and its own router_url"
    )]
    NotOurs,
    /// It was signed by one of the keys, but too long ago or too far ahead.
    #[error(
        "the request was signed {0} away from this node's clock: set the clocks of all nodes, or raise \
         cluster_clock_skew_s"
    )]
    OtherTime(Span),
}

/// An answer that no node with our keys gave to this request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the answer is not signed by a node with the same cluster_keys")]
pub struct NotOurs;

impl ClusterKeys {
    /// The keys of an installation; none where it has no cluster keys.
    pub fn derive(keys: &Keys) -> Option<Self> {
        let derive = |purpose| MacKeys::derive_from_cluster(keys, purpose, b"");
        Some(Self { requests: derive(REQUEST_PURPOSE)?, answers: derive(ANSWER_PURPOSE)? })
    }

    /// Signs a request that is sent at `now`; gives its `authorization` header, and what its answer must be
    /// signed for.
    pub fn sign(&self, request: &Request<'_>, now: Time) -> (String, RequestMac) {
        let mac = self.requests.sign(&request.text(now));
        let header = format!("Kalends t={} mac={}", now.0, URL_SAFE_NO_PAD.encode(mac));
        (header, RequestMac { mac, key: 0 })
    }

    /// Whether the `authorization` header of a request that came at `now` is right; the clocks may be `skew` apart.
    pub fn verify(
        &self,
        request: &Request<'_>,
        header: &str,
        now: Time,
        skew: Span,
    ) -> Result<RequestMac, Refused> {
        let (time, mac) = parse(header).ok_or(Refused::Unsigned)?;
        let text = request.text(time);
        let key = self.requests.signer(&text, &mac).ok_or(Refused::NotOurs)?;
        // Not before: a time is worth nothing until it is known who says it.
        let apart = now.since(time).max(time.since(now));
        if apart > skew { Err(Refused::OtherTime(apart)) } else { Ok(RequestMac { mac, key }) }
    }

    /// Signs an answer: its `kalends-mac` header.
    pub fn sign_answer(&self, request: &RequestMac, status: u16) -> String {
        let mac = self.answers.sign_with(request.key, &answer_text(request, status));
        URL_SAFE_NO_PAD.encode(mac)
    }

    /// Whether the `kalends-mac` header of an answer is right.
    pub fn verify_answer(
        &self,
        request: &RequestMac,
        status: u16,
        header: &str,
    ) -> Result<(), NotOurs> {
        let mac = decode_mac(header).ok_or(NotOurs)?;
        self.answers.verify(&answer_text(request, status), &mac).map_err(|_| NotOurs)
    }
}

impl fmt::Debug for ClusterKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKeys(redacted)")
    }
}

impl Request<'_> {
    /// What is signed. Only the body, which is the last, may have line ends in it.
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

fn parse(header: &str) -> Option<(Time, [u8; MAC_BYTES])> {
    let (time, mac) = header.strip_prefix("Kalends t=")?.split_once(" mac=")?;
    let is_number = time.bytes().all(|byte| byte.is_ascii_digit()) && !time.starts_with('0');
    if time.len() > TIME_DIGITS_MAX || !is_number {
        return None;
    }
    Some((Time(time.parse().ok()?), decode_mac(mac)?))
}

fn decode_mac(text: &str) -> Option<[u8; MAC_BYTES]> {
    let mut mac = [0; MAC_BYTES];
    if text.len() != MAC_TEXT_BYTES {
        return None;
    }
    let length = URL_SAFE_NO_PAD.decode_slice(text, &mut mac).ok()?;
    (length == MAC_BYTES).then_some(mac)
}
