//! One request to another node: signed, bounded in time, its answer believed only when it is signed too.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use actors::Clock;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::AUTHORIZATION;
use hyper::http::uri::Authority;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use state_machine::NodeId;
use tokio::time::timeout;

use super::limits::RemoteLimits;
use crate::peers::address::{AllowedNodes, NodeAddress};
use crate::peers::signature::{self, ANSWER_MAC_HEADER, ClusterKeys, RequestMac};

/// Bytes of an answer's headers at most. Its body is never read.
const ANSWER_BYTES_MAX: usize = 16 * 1024;

/// A node that may be called.
pub(super) struct Peer {
    /// Its name, which requests are signed for, and where it listens.
    pub(super) address: NodeAddress,
    authority: Authority,
}

/// What a node is asked.
pub(super) struct OutboundRequest {
    /// `PUT` or `DELETE`.
    pub(super) method: Method,
    /// The path.
    pub(super) path: String,
    /// The body; most have none.
    pub(super) body: Bytes,
}

/// Why nothing is known of what was asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    /// The connection could not be made, or broke, or what came was not HTTP.
    #[error("{}", with_causes(.0))]
    Broken(#[from] ClientError),
    /// Nothing came in that time.
    #[error("no answer in {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// Who answered does not have our keys, or was asked with wrong ones.
    #[error("an answer with status {} that is not signed", .0.as_u16())]
    NotSigned(StatusCode),
}

/// Makes requests of other nodes.
pub(super) struct Caller {
    keys: Arc<ClusterKeys>,
    clock: Clock,
    clients: Clients,
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
        Self { keys, clock, clients: Clients::new(limits) }
    }

    /// Asks a node, and gives the status of its signed answer.
    pub(super) async fn call(
        &self,
        peer: &Peer,
        ask: OutboundRequest,
        wait: Duration,
    ) -> Result<StatusCode, CallError> {
        let (request, mac) = self.signed(peer, ask);
        let answer = self.clients.of_this_thread().request(request);
        let answer = timeout(wait, answer).await.map_err(|_| CallError::TimedOut(wait))??;
        self.believed(&answer, &mac)
    }

    fn signed(&self, peer: &Peer, ask: OutboundRequest) -> (Request<Full<Bytes>>, RequestMac) {
        let OutboundRequest { method, path, body } = ask;
        let (node, name) = (peer.address.node(), method.as_str());
        let signed = signature::Request { method: name, path: &path, node, body: &body };
        let (authorization, mac) = self.keys.sign(&signed, self.clock.now());
        let uri = Uri::builder().scheme("http").authority(peer.authority.clone());
        let uri = uri.path_and_query(path).build().expect("hex digits and slashes are a path");
        let request = Request::builder().method(method).uri(uri);
        let request = request.header(AUTHORIZATION, authorization).body(Full::new(body));
        (request.expect("a signature is base64url, which is a header's value"), mac)
    }

    fn believed<B>(&self, answer: &Response<B>, mac: &RequestMac) -> Result<StatusCode, CallError> {
        let status = answer.status();
        let header = answer.headers().get(ANSWER_MAC_HEADER);
        let header = header.and_then(|value| value.to_str().ok()).unwrap_or_default();
        let verified = self.keys.verify_answer(mac, status.as_u16(), header);
        verified.map(|()| status).map_err(|_| CallError::NotSigned(status))
    }
}

type HttpClient = Client<HttpConnector, Full<Bytes>>;

/// HTTP clients, each with its own connections: one for each thread that asks, so that a request wakes no thread
/// but its own, and a thread that ends takes nobody else's connections along.
struct Clients {
    /// The oldest first.
    by_thread: Mutex<Vec<(ThreadId, HttpClient)>>,
    threads: usize,
    connect_timeout: Duration,
    connections_idle_max: usize,
    connection_idle: Duration,
}

impl Clients {
    fn new(limits: &RemoteLimits) -> Self {
        let &RemoteLimits { threads, connect_timeout, .. } = limits;
        let &RemoteLimits { connections_idle_max, connection_idle, .. } = limits;
        let by_thread = Mutex::default();
        Self { by_thread, threads, connect_timeout, connections_idle_max, connection_idle }
    }

    fn of_this_thread(&self) -> HttpClient {
        let here = thread::current().id();
        // Nothing is left half-done where a thread could panic.
        let mut all = self.by_thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, client)) = all.iter().find(|(thread, _)| *thread == here) {
            return client.clone();
        }
        // A worker that panicked was replaced, and left one behind.
        if all.len() >= self.threads {
            all.remove(0);
        }
        let client = self.connect();
        all.push((here, client.clone()));
        client
    }

    fn connect(&self) -> HttpClient {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(self.connect_timeout));
        connector.set_nodelay(true);
        Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(self.connection_idle)
            .pool_max_idle_per_host(self.connections_idle_max)
            .http1_max_buf_size(ANSWER_BYTES_MAX)
            .build(connector)
    }
}

/// An error of the client says that it could not connect; its causes say why.
fn with_causes(error: &ClientError) -> String {
    let first: &dyn std::error::Error = error;
    let all = std::iter::successors(Some(first), |error| error.source());
    all.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
