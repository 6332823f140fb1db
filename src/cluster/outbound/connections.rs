//! The connections of one thread to other nodes. An idle one is a socket and nothing else.
//!
//! HTTP/1 of hyper keeps two buffers of 8 KiB, a task and channels for as long as it has a connection. So it has one
//! only during a request.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io::ErrorKind::{TimedOut, WouldBlock};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::Full;
use hyper::Request;
use hyper::body::Body;
use hyper::client::conn::http1::{self, Connection, Parts};
use hyper::http::response;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use state_machine::NodeId;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};

use super::limits::RemoteLimits;
use super::peer::{CallError, Peer};

/// Maximum size of an answer's headers. The body is never read.
const ANSWER_BYTES_MAX: usize = 16 * 1024;

/// Clones are the same connections.
#[derive(Clone)]
pub(super) struct Connections {
    limits: RemoteLimits,
    idle: Arc<Mutex<Idle>>,
}

#[derive(Default)]
struct Idle {
    /// With the time of the last answer, which orders them.
    by_node: HashMap<NodeId, Vec<(Instant, TcpStream)>>,
    /// Whether a task closes those whose time is over.
    is_swept: bool,
}

type Http = Connection<TokioIo<TcpStream>, Full<Bytes>>;

impl Connections {
    pub(super) fn new(limits: &RemoteLimits) -> Self {
        Self { limits: *limits, idle: Arc::default() }
    }

    /// Sends a request on an idle connection or a new one, and returns the head of the answer.
    pub(super) async fn send(
        &self,
        peer: &Peer,
        request: Request<Full<Bytes>>,
    ) -> Result<response::Parts, CallError> {
        let stream = match self.take(peer.address.node()) {
            Some(stream) => stream,
            None => self.connect(peer).await?,
        };
        let http =
            http1::Builder::new().max_buf_size(ANSWER_BYTES_MAX).handshake(TokioIo::new(stream));
        let (mut sender, mut http) = http.await?;
        let answer = sender.send_request(request);
        let (head, body) = drive(&mut http, answer).await?.into_parts();
        // A body that is not read is in the way of the next answer.
        let is_whole = body.is_end_stream();
        drop(body);
        let is_kept =
            drive(&mut http, sender.ready()).now_or_never().is_some_and(|ready| ready.is_ok());
        let Parts { io, read_buf, .. } = http.into_parts();
        if is_whole && is_kept && read_buf.is_empty() {
            self.keep(peer.address.node(), io.into_inner());
        }
        Ok(head)
    }

    async fn connect(&self, peer: &Peer) -> Result<TcpStream, CallError> {
        let wait = self.limits.connect_timeout;
        let address = (peer.address.host(), peer.address.port());
        let stream = match timeout(wait, TcpStream::connect(address)).await {
            Ok(stream) => stream.and_then(|stream| stream.set_nodelay(true).map(|()| stream)),
            Err(_) => Err(TimedOut.into()),
        };
        stream.map_err(CallError::NotConnected)
    }

    /// The connection that was used last, unless the node has closed it or sent what is no answer.
    fn take(&self, node: &NodeId) -> Option<TcpStream> {
        let mut idle = self.idle.lock();
        let streams = idle.by_node.get_mut(node)?;
        loop {
            let (_, stream) = streams.pop()?;
            if stream.try_read(&mut [0]).is_err_and(|error| error.kind() == WouldBlock) {
                return Some(stream);
            }
        }
    }

    fn keep(&self, node: &NodeId, stream: TcpStream) {
        let mut idle = self.idle.lock();
        let streams = match idle.by_node.get_mut(node) {
            Some(streams) => streams,
            None => idle.by_node.entry(node.clone()).or_default(),
        };
        if streams.len() >= self.limits.connections_idle_max {
            return;
        }
        streams.push((Instant::now(), stream));
        if !idle.is_swept {
            idle.is_swept = true;
            tokio::spawn(sweep(Arc::downgrade(&self.idle), self.limits.connection_idle));
        }
    }
}

/// Closes idle connections when their time is over, until there are none.
async fn sweep(idle: Weak<Mutex<Idle>>, time: Duration) {
    while let Some(oldest) = idle.upgrade().and_then(|idle| idle.lock().close_after(time)) {
        sleep_until(oldest + time).await;
    }
}

impl Idle {
    /// Closes the connections whose time is over. Returns since when the oldest one is idle that is left.
    fn close_after(&mut self, time: Duration) -> Option<Instant> {
        self.by_node.retain(|_, streams| {
            streams.retain(|(since, _)| since.elapsed() < time);
            !streams.is_empty()
        });
        let oldest = self.by_node.values().filter_map(|streams| streams.first());
        let oldest = oldest.map(|(since, _)| *since).min();
        self.is_swept = oldest.is_some();
        oldest
    }
}

/// Polls a connection together with what waits for it.
async fn drive<F: Future>(http: &mut Http, waiting: F) -> F::Output {
    let mut waiting = pin!(waiting);
    let mut is_open = true;
    poll_fn(|cx| {
        // Why it ended is the result of the request.
        is_open = is_open && http.poll_without_shutdown(cx).is_pending();
        waiting.as_mut().poll(cx)
    })
    .await
}
