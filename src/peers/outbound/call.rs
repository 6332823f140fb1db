//! One signed request to another node, with a timeout. Only a signed answer counts.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use actors::Clock;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, HOST};
use hyper::http::uri::Authority;
use hyper::{Request, StatusCode};
use state_machine::NodeId;
use tokio::time::timeout;

use super::connections::Connections;
use super::limits::RemoteLimits;
use crate::https_client::with_causes;
use crate::node_address::{AllowedNodes, NodeAddress};
use crate::peers::request::PeerRequest;
use crate::peers::signature::{self, ANSWER_MAC_HEADER, ClusterKeys, RequestMac};

/// A node that may be called.
pub(super) struct Peer {
    pub(super) address: NodeAddress,
    pub(super) authority: Authority,
}

/// Why it is unknown whether the node processed the request.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error("cannot connect: {0}")]
    NotConnected(io::Error),
    #[error("{}", with_causes(.0))]
    Broken(#[from] hyper::Error),
    #[error("no answer in {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// The answer is of a program without the cluster keys, or refuses a wrong signature.
    #[error("an answer with status {} that is not signed", .0.as_u16())]
    NotSigned(StatusCode),
}

pub(super) struct Caller {
    keys: Arc<ClusterKeys>,
    clock: Clock,
    limits: RemoteLimits,
    /// Each calling thread has its own connections: a request wakes no other thread, and a thread
    /// that ends closes no connections of others. The oldest is the first to be removed.
    by_thread: Mutex<Vec<(ThreadId, Connections)>>,
}

impl Peer {
    /// The node of that name, if it may be called.
    pub(super) fn allowed(node: &NodeId, allowed: &AllowedNodes) -> Option<Self> {
        let address = NodeAddress::parse(node).ok().filter(|address| allowed.allows(address))?;
        let authority = address.authority().parse().ok()?;
        Some(Self { address, authority })
    }
}

impl Caller {
    pub(super) fn new(keys: Arc<ClusterKeys>, clock: Clock, limits: &RemoteLimits) -> Self {
        Self { keys, clock, limits: *limits, by_thread: Mutex::default() }
    }

    /// Sends a request, and returns the status of its signed answer.
    pub(super) async fn call(
        &self,
        peer: &Peer,
        request: PeerRequest,
        body: Bytes,
        wait: Duration,
    ) -> Result<StatusCode, CallError> {
        let (request, mac) = self.sign(peer, request, body);
        let connections = self.connections_of_this_thread();
        let answer = timeout(wait, connections.send(peer, request)).await;
        let answer = answer.map_err(|_| CallError::TimedOut(wait))??;
        let status = answer.status;
        let header = answer.headers.get(ANSWER_MAC_HEADER);
        let header = header.and_then(|value| value.to_str().ok()).unwrap_or_default();
        let verified = self.keys.verify_answer(&mac, status.as_u16(), header);
        verified.map(|()| status).map_err(|_| CallError::NotSigned(status))
    }

    fn sign(
        &self,
        peer: &Peer,
        request: PeerRequest,
        body: Bytes,
    ) -> (Request<Full<Bytes>>, RequestMac) {
        let (method, path, node) = (request.method(), request.path(), peer.address.node());
        let signed = signature::Request { method, path: &path, node, body: &body };
        let (authorization, mac) = self.keys.sign(&signed, self.clock.now());
        let request = Request::builder().method(method).uri(path);
        let request = request.header(HOST, peer.authority.as_str());
        let request = request.header(AUTHORIZATION, authorization).body(Full::new(body));
        (request.expect("a path of hex digits and a base64url signature are valid"), mac)
    }

    fn connections_of_this_thread(&self) -> Connections {
        let here = thread::current().id();
        // A panic cannot leave the list half-updated.
        let mut all = self.by_thread.lock().unwrap_or_else(PoisonError::into_inner);
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
