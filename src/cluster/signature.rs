//! Authentication between nodes: requests and answers are signed with a cluster key.
//!
//! The signed text is specified in `docs/protocol.md`, "Between nodes". A request is signed for one
//! node and one time, so that it is invalid elsewhere and later. An answer is signed for one
//! request and with its key, so that it is valid while a key is replaced. So is the time of the node, which it gives to
//! a caller whose clock differs.
//!
//! Requests and answers are not encrypted.

#[cfg(test)]
mod tests;

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use state_machine::{ClockDifference, NodeId, Span, Time};

use crate::settings::keys::{Keys, MAC_BYTES, MacKeys, Purpose, decode_mac};

/// The header with the signature of an answer.
pub const ANSWER_MAC_HEADER: &str = "kalends-mac";

/// The header with the time of the node, in an answer that refuses the time of a request.
pub const TIME_HEADER: &str = "kalends-time";

/// The headers of an answer to an operator: what the node says of itself, and its signature.
pub const ABOUT_HEADER: &str = "kalends-node";
pub const ABOUT_MAC_HEADER: &str = "kalends-node-mac";

/// Maximum difference between the clocks of two nodes that call each other with the time of the other one.
pub const CLOCK_DIFFERENCE_MAX: Span = Span::from_secs(24 * 60 * 60);

/// The first lines of signed texts.
const REQUEST_LINE: &str = "kalends node request 1";
const ANSWER_LINE: &str = "kalends node answer 1";

/// The status of an answer with the time of the node.
const UNAUTHORIZED: u16 = 401;

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

/// The `authorization` header of a request: well-formed and of this day, and not verified yet.
#[derive(Debug, Clone, Copy)]
pub struct Signature {
    time: Time,
    /// How far `time` is ahead of this node's clock, if that is more than nodes may differ.
    other_time: Option<ClockDifference>,
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
    /// The time is more than a day from the clock of this node. The signature is not verified.
    #[error("the clock of the caller is {0}: set the clocks of all nodes")]
    OtherDay(ClockDifference),
    /// A node of the cluster signed this request for this node, with a time too far from its clock.
    #[error(
        "the clock of the caller is {ahead}, it calls again with the time of this node: set the clocks of all nodes, or \
         raise cluster_clock_skew_s"
    )]
    OtherTime { request: RequestMac, ahead: ClockDifference },
}

impl ClusterKeys {
    /// None if the installation has no cluster keys.
    pub fn derive(keys: &Keys) -> Option<Self> {
        let derive = |purpose| MacKeys::derive(keys.cluster_keys(), purpose, b"");
        (!keys.cluster_keys().is_empty()).then(|| Self {
            requests: derive(Purpose::NodeRequest),
            answers: derive(Purpose::NodeAnswer),
        })
    }

    /// Signs a request sent at `now`: its `authorization` header, and what verifies its answer.
    pub fn sign(&self, request: &Request<'_>, now: Time) -> (String, RequestMac) {
        let mac = self.requests.sign_with(0, &request.text(now));
        let header = format!("Kalends t={} mac={}", now.0, URL_SAFE_NO_PAD.encode(mac));
        (header, RequestMac { mac, key: 0 })
    }

    /// Verifies the signature of a request, and then its time.
    pub fn verify(
        &self,
        request: &Request<'_>,
        signature: &Signature,
    ) -> Result<RequestMac, Refused> {
        let Signature { time, other_time, mac } = *signature;
        let key = self.requests.signer(&request.text(time), &mac).ok_or(Refused::NotOurs)?;
        let request = RequestMac { mac, key };
        other_time.map_or(Ok(request), |ahead| Err(Refused::OtherTime { request, ahead }))
    }

    /// The `kalends-mac` header of an answer.
    pub fn sign_answer(&self, request: &RequestMac, status: u16) -> String {
        let mac = self.answers.sign_with(request.key, &answer_text(request, status));
        URL_SAFE_NO_PAD.encode(mac)
    }

    /// Verifies the `kalends-mac` header of an answer.
    pub fn verify_answer(&self, request: &RequestMac, status: u16, header: &str) -> bool {
        self.answers.verify(answer_text(request, status), header)
    }
}

/// What an answer has beside its status.
impl ClusterKeys {
    /// The signature of what the node says of itself, in the answer with this status.
    pub fn sign_about(&self, request: &RequestMac, status: u16, about: &str) -> String {
        let text = about_text(request, status, about);
        URL_SAFE_NO_PAD.encode(self.answers.sign_with(request.key, &text))
    }

    pub fn verify_about(
        &self,
        request: &RequestMac,
        status: u16,
        (about, header): (&str, &str),
    ) -> bool {
        self.answers.verify(about_text(request, status, about), header)
    }

    /// The `kalends-time` and `kalends-mac` headers of an answer with status 401 to a request of another time.
    pub fn sign_time(&self, request: &RequestMac, now: Time) -> (String, String) {
        let mac = self.answers.sign_with(request.key, &time_text(request, now));
        (now.0.to_string(), URL_SAFE_NO_PAD.encode(mac))
    }

    /// The time of the node that answered with these headers and status 401.
    pub fn verify_time(&self, request: &RequestMac, time: &str, header: &str) -> Option<Time> {
        parse_time(time).filter(|time| self.answers.verify(time_text(request, *time), header))
    }
}

impl fmt::Debug for ClusterKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKeys(redacted)")
    }
}

impl Signature {
    /// Reads an `authorization` header received at `now`; the clocks may differ by `skew`. It needs no
    /// body, so that a request without a signature of this day is refused before its body is read.
    pub fn read(header: &str, now: Time, skew: Span) -> Result<Self, Refused> {
        let (time, mac) = Self::parse(header).ok_or(Refused::Unsigned)?;
        let ahead = ClockDifference::between(time, now);
        if ahead.span() > CLOCK_DIFFERENCE_MAX {
            return Err(Refused::OtherDay(ahead));
        }
        let other_time = Some(ahead).filter(|ahead| ahead.span() > skew);
        Ok(Self { time, other_time, mac })
    }

    fn parse(header: &str) -> Option<(Time, [u8; MAC_BYTES])> {
        let (time, mac) = header.strip_prefix("Kalends t=")?.split_once(" mac=")?;
        Some((parse_time(time)?, decode_mac(mac)?))
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

fn about_text(request: &RequestMac, status: u16, about: &str) -> Vec<u8> {
    [&answer_text(request, status)[..], b"\n", about.as_bytes()].concat()
}

fn time_text(request: &RequestMac, now: Time) -> Vec<u8> {
    about_text(request, UNAUTHORIZED, &now.0.to_string())
}

/// Milliseconds since 1970. A sign or a leading zero would be another spelling.
fn parse_time(text: &str) -> Option<Time> {
    let time: u64 = text.parse().ok()?;
    (time > 0 && time.to_string() == text).then_some(Time(time))
}
