//! One signed request to another node, with a timeout. Only a signed answer counts.
//!
//! A node whose clock differs refuses a request and answers its own time, signed. The request is sent once more, signed
//! with that time, and further ones are signed with the difference (docs/decisions/0052).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ThreadId};
use std::time::Duration;

use actors::Clock;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, HOST};
use hyper::http::response::Parts;
use hyper::{Request, StatusCode};
use parking_lot::Mutex;
use state_machine::ClockDifference;
use tokio::time::timeout;

use super::connections::Connections;
use super::limits::RemoteLimits;
use super::peer::{CallError, Peer};
use crate::cluster::about::AboutNode;
use crate::cluster::request::PeerRequest;
use crate::cluster::signature;
use crate::cluster::signature::{
    ABOUT_HEADER, ABOUT_MAC_HEADER, ANSWER_MAC_HEADER, CLOCK_DIFFERENCE_MAX, ClusterKeys,
    RequestMac, TIME_HEADER,
};

pub(super) struct Caller {
    keys: Arc<ClusterKeys>,
    pub(super) clock: Clock,
    limits: RemoteLimits,
    /// Each calling thread has its own connections: a request wakes no other thread, and a thread
    /// that ends closes no connections of others. The oldest is the first to be removed.
    by_thread: Mutex<Vec<(ThreadId, Connections)>>,
    /// A clock has differed since the start.
    has_differed: AtomicBool,
    /// What is known of clocks has changed since it was logged.
    pub(super) clock_news: AtomicBool,
}

/// A signed request, and what verifies its answer.
struct Signed {
    request: Request<Full<Bytes>>,
    mac: RequestMac,
    /// Its time is this far ahead of this node's clock.
    ahead: ClockDifference,
}

/// An answer with a valid signature.
pub(super) struct Answered {
    pub(super) status: StatusCode,
    /// What the node says of itself, if the request is an operator's.
    pub(super) about: Option<AboutNode>,
}

impl Caller {
    pub(super) fn new(keys: Arc<ClusterKeys>, clock: Clock, limits: &RemoteLimits) -> Self {
        Self {
            keys,
            clock,
            limits: *limits,
            by_thread: Mutex::default(),
            has_differed: AtomicBool::new(false),
            clock_news: AtomicBool::new(false),
        }
    }

    /// Sends a request, and returns the status of its signed answer.
    pub(super) async fn call(
        &self,
        peer: &Peer,
        request: PeerRequest,
        body: Bytes,
        wait: Duration,
    ) -> Result<StatusCode, CallError> {
        self.ask(peer, request, body, wait).await.map(|answered| answered.status)
    }

    /// As [`call`](Self::call), with all that the answer says.
    pub(super) async fn ask(
        &self,
        peer: &Peer,
        request: PeerRequest,
        body: Bytes,
        wait: Duration,
    ) -> Result<Answered, CallError> {
        let answer = async {
            match self.send(peer, request, body.clone()).await {
                // Once: a node that refuses its own time is not called in a loop.
                Err(CallError::OtherTime(_)) => self.send(peer, request, body).await,
                result => result,
            }
        };
        timeout(wait, answer).await.map_err(|_| CallError::TimedOut(wait))?
    }

    async fn send(
        &self,
        peer: &Peer,
        request: PeerRequest,
        body: Bytes,
    ) -> Result<Answered, CallError> {
        let Signed { request, mac, ahead } = self.sign(peer, request, body);
        let answer = self.connections_of_this_thread().send(peer, request).await?;
        let status = answer.status;
        if let Some(theirs) = self.other_time(&mac, &answer) {
            self.refused(peer, ahead, theirs);
            return Err(CallError::OtherTime(theirs));
        }
        let signature = header(&answer, ANSWER_MAC_HEADER);
        if self.keys.verify_answer(&mac, status.as_u16(), signature) {
            self.accepted(peer);
            let about = self.about(&mac, &answer);
            return Ok(Answered { status, about });
        }
        if status == StatusCode::UNAUTHORIZED && ahead != ClockDifference::ZERO {
            peer.clock.forget();
        }
        Err(CallError::NotSigned(status))
    }

    fn about(&self, mac: &RequestMac, answer: &Parts) -> Option<AboutNode> {
        let about = header(answer, ABOUT_HEADER);
        // Most answers have none.
        if about.is_empty() {
            return None;
        }
        let signed = (about, header(answer, ABOUT_MAC_HEADER));
        let is_signed = self.keys.verify_about(mac, answer.status.as_u16(), signed);
        AboutNode::parse(about).filter(|_| is_signed)
    }

    /// How far the node's clock is ahead, if the answer refuses the time of the request.
    fn other_time(&self, mac: &RequestMac, answer: &Parts) -> Option<ClockDifference> {
        if answer.status != StatusCode::UNAUTHORIZED {
            return None;
        }
        let (time, signature) = (header(answer, TIME_HEADER), header(answer, ANSWER_MAC_HEADER));
        let time = self.keys.verify_time(mac, time, signature)?;
        Some(ClockDifference::between(time, self.clock.now()))
    }

    fn refused(&self, peer: &Peer, used: ClockDifference, theirs: ClockDifference) {
        if theirs.span() > CLOCK_DIFFERENCE_MAX {
            return peer.clock.forget();
        }
        if peer.clock.refused(used, theirs, self.limits.clock_skew) {
            self.has_differed.store(true, Ordering::Relaxed);
            self.clock_news.store(true, Ordering::Relaxed);
        }
    }

    fn accepted(&self, peer: &Peer) {
        // Another clock may decide which one is wrong.
        if peer.clock.accepted() && self.has_differed.load(Ordering::Relaxed) {
            self.clock_news.store(true, Ordering::Relaxed);
        }
    }

    fn sign(&self, peer: &Peer, request: PeerRequest, body: Bytes) -> Signed {
        let (method, path, node) = (request.method(), request.path(), peer.address.node());
        let signed = signature::Request { method, path: &path, node, body: &body };
        let ahead = peer.clock.ahead().unwrap_or_default();
        let (authorization, mac) = self.keys.sign(&signed, self.clock.now() + ahead);
        let request = Request::builder().method(method).uri(path);
        let request = request.header(HOST, peer.address.authority());
        let request = request.header(AUTHORIZATION, authorization).body(Full::new(body));
        let request = request.expect("a path of hex digits and a base64url signature are valid");
        Signed { request, mac, ahead }
    }

    fn connections_of_this_thread(&self) -> Connections {
        let here = thread::current().id();
        let mut all = self.by_thread.lock();
        if let Some((_, connections)) = all.iter().find(|(thread, _)| *thread == here) {
            return connections.clone();
        }
        // A worker thread that panicked was replaced, and its connections are still in the list.
        if all.len() >= self.limits.threads {
            all.remove(0);
        }
        let connections = Connections::new(&self.limits);
        all.push((here, connections.clone()));
        connections
    }
}

/// The value of a header; empty if it is missing or no text.
fn header<'a>(answer: &'a Parts, name: &str) -> &'a str {
    answer.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}
