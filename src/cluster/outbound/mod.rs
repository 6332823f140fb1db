//! Calls other nodes over HTTP. Pushes, notifications and an operator's questions enter; signed requests to router ports,
//! and the meaning of their answers, leave.
//!
//! Anything but a signed answer is [`NodeAnswer::Unreachable`] to a push, and proves nothing. It
//! also opens the circuit breaker of the node, so that a dead node does not cost every push a
//! timeout. While the breaker is open, only the worker of the node calls it.
//!
//! - `peer_state`: the state of one node. `peer`: its address and clock.
//! - `call`: one request. `connections`: what it is sent on.
//! - `clock_log`: the log of the clocks that are wrong.
//! - `pending_notifications`: a queue in memory. After a restart of this process, user agents find
//!   their messages with the storage scan every `storage_recheck_s`.
//! - `node_access`: a question for an operator, or whether a node can be reached by its own name.
//!
//! A node that answers and has no pending notifications has no task and no timer of its own. One task for all nodes
//! introduces this one to them, so that operators learn of it.

mod call;
mod clock_log;
mod connections;
mod limits;
mod node_access;
mod peer;
mod peer_state;
mod pending_notifications;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use actors::observe::PeerStatus;
use actors::{Clock, NodeDirectory, SharedLogLimiter};
use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use hyper::StatusCode;
use parking_lot::RwLock;
use slog::{Logger, warn};
use state_machine::breaker::Epoch;
use state_machine::delivery::NodeAnswer;
use state_machine::log_limiter::LogLimiter;
use state_machine::{ClockComparison, ClockDifference, Message, NodeId, Span, Time, Uaid};
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

use super::about::Introduction;
use super::callers::Callers;
use super::request::PeerRequest;
use super::signature::ClusterKeys;
use super::wire_message;
use crate::system::build::Build;
use crate::system::node_address::AllowedNodes;
use call::Caller;
use clock_log::ClockLog;
pub use limits::RemoteLimits;
pub use node_access::{NodeAccess, PeerAnswer, PeerIdentity};
use peer::{CallError, Peer};
use peer_state::{NOTIFICATIONS_AT_ONCE, NextAction, PeerState, RequestPermit};

/// Minimum time between two searches of a full table for entries to evict.
const SWEEP_INTERVAL: Span = Span(100);

/// Length to which the logged name of a blocked node is truncated. The URL of a node is never longer.
const LOGGED_CHARS_MAX: usize = 300;

/// The agent of a probe and of an introduction. No agent has this id, so that the answer is "not here".
const PROBE_AGENT: Uaid = Uaid([0; 16]);

/// The other nodes, by the URLs of their router ports.
pub struct RemoteNodes {
    shared: Arc<Shared>,
}

struct Shared {
    allowed: AllowedNodes,
    limits: RemoteLimits,
    caller: Caller,
    peers: RwLock<PeerTable>,
    /// A node is called for the first time.
    peer_added: Arc<Notify>,
    blocked_limiter: SharedLogLimiter,
    clock_log: ClockLog,
    /// The nodes that call this one, which know its clock too.
    callers: Arc<Callers>,
    /// Monotonic time since this was created.
    ticks: Clock,
    /// The runtime of the workers.
    runtime: Handle,
    log: Logger,
}

struct PeerTable {
    by_node: HashMap<NodeId, Arc<PeerState>>,
    swept_at: Option<Time>,
    full_limiter: LogLimiter,
    is_closed: bool,
}

impl RemoteNodes {
    /// Must be called in a runtime that outlives this value: workers run there.
    pub fn new(
        keys: Arc<ClusterKeys>,
        allowed: AllowedNodes,
        limits: RemoteLimits,
        callers: Arc<Callers>,
        clock: Clock,
        log: Logger,
    ) -> Self {
        let table = PeerTable {
            by_node: HashMap::new(),
            swept_at: None,
            full_limiter: LogLimiter::new(limits.log_every),
            is_closed: false,
        };
        let shared = Shared {
            allowed,
            limits,
            caller: Caller::new(keys, clock, &limits),
            peers: RwLock::new(table),
            peer_added: Arc::default(),
            blocked_limiter: SharedLogLimiter::new(limits.log_every),
            clock_log: ClockLog::new(limits.log_every, log.clone()),
            callers,
            ticks: Clock::starting_at(Time(0)),
            runtime: Handle::current(),
            log,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Introduces this node to each node that it calls: with the first call, and then every `introduce_every`.
    pub fn introduce(&self, name: &str, role: &str) {
        let (name, role, version) = (name.to_owned(), role.to_owned(), Build::TEXT.to_owned());
        let own = Introduction { name, role, version, time_ms: 0 };
        let Shared { peer_added, runtime, .. } = &*self.shared;
        runtime.spawn(introduce(Arc::downgrade(&self.shared), Arc::clone(peer_added), own));
    }

    /// Stops all workers, and refuses further requests. Pushes in progress are completed.
    pub fn close(&self) {
        let mut peers = self.shared.peers.write();
        peers.is_closed = true;
        peers.by_node.drain().for_each(|(_, peer)| peer.close());
    }

    fn notify(&self, node: &NodeId, notification: PeerRequest) {
        let now = self.shared.ticks.now();
        if let Some(peer) = self.shared.peer(node, now) {
            peer.add(notification, now);
            self.shared.wake_worker(&peer);
        }
    }
}

impl NodeDirectory for RemoteNodes {
    /// Answers at once if the node must not be called. Dropping the receiver cancels the push.
    fn deliver(
        &self,
        node: &NodeId,
        uaid: Uaid,
        message: Message,
    ) -> oneshot::Receiver<NodeAnswer> {
        let (reply, answer) = oneshot::channel();
        let now = self.shared.ticks.now();
        let peer = self.shared.peer(node, now).ok_or(NodeAnswer::Unreachable);
        match peer.and_then(|peer| peer.begin(now)) {
            Ok(permit) => {
                let body = Bytes::from(wire_message::to_bytes(&message));
                let push = push(Arc::clone(&self.shared), permit, uaid, body, reply, now);
                // Each thread has its own HTTP connections.
                Handle::try_current().unwrap_or_else(|_| self.shared.runtime.clone()).spawn(push);
            }
            // The receiver exists until this function returns.
            Err(refused) => _ = reply.send(refused),
        }
        answer
    }

    fn notify_stored(&self, node: &NodeId, uaid: Uaid) {
        self.notify(node, PeerRequest::MessageStored(uaid));
    }

    fn notify_moved(&self, node: &NodeId, uaid: Uaid, connected_at: Time) {
        self.notify(node, PeerRequest::ConnectedElsewhere(uaid, connected_at));
    }

    fn peers(&self) -> Vec<PeerStatus> {
        let now = self.shared.ticks.now();
        let peers = self.shared.peers.read();
        peers.by_node.iter().map(|(node, peer_state)| peer_state.observe(node, now)).collect()
    }

    fn probe(&self, node: &NodeId) {
        let peer = self.shared.peers.read().by_node.get(node).cloned();
        let Some((peer, epoch)) = peer.and_then(|peer| peer.epoch().map(|epoch| (peer, epoch)))
        else {
            return;
        };
        let shared = Arc::clone(&self.shared);
        self.shared.runtime.spawn(async move {
            send(&shared, &peer, epoch, PeerRequest::MessageStored(PROBE_AGENT)).await;
            shared.wake_worker(&peer);
        });
    }

    fn clocks(&self) -> ClockComparison {
        self.shared.clocks()
    }
}

impl Drop for RemoteNodes {
    fn drop(&mut self) {
        self.close();
    }
}

async fn push(
    shared: Arc<Shared>,
    permit: RequestPermit,
    uaid: Uaid,
    body: Bytes,
    mut reply: oneshot::Sender<NodeAnswer>,
    began: Time,
) {
    let RemoteLimits { push_wait, hang_after, .. } = shared.limits;
    let request = PeerRequest::DeliverPush(uaid);
    let result = tokio::select! {
        biased;
        result = shared.call(&permit.peer.peer, request, body, push_wait) => Some(result),
        () = reply.closed() => None,
    };
    let now = shared.ticks.now();
    let result = match result {
        Some(result) => result,
        None if now.since(began) >= hang_after => Err(CallError::TimedOut(push_wait)),
        // The endpoint stores the message, and the node notices that the connection is closed.
        None => return,
    };
    permit.peer.finished(permit.epoch, &result, now);
    if result.is_err() {
        shared.wake_worker(&permit.peer);
    }
    // Returned before the answer is sent, so that the next push finds it free.
    drop(permit);
    let answer = result.map_or(NodeAnswer::Unreachable, interpret);
    // The endpoint may have given up in the meantime.
    let _ = reply.send(answer);
}

/// The meaning of the signed answer to a push.
fn interpret(status: StatusCode) -> NodeAnswer {
    match status {
        StatusCode::OK => NodeAnswer::Accepted,
        StatusCode::ACCEPTED => NodeAnswer::Unconfirmed,
        StatusCode::NOT_FOUND => NodeAnswer::NotHere,
        StatusCode::GONE => NodeAnswer::NoSuchChannel,
        StatusCode::SERVICE_UNAVAILABLE => NodeAnswer::Busy,
        _ => NodeAnswer::Unreachable,
    }
}

impl Shared {
    /// The state of a node; None if the node must not be called, or the table is full.
    fn peer(&self, node: &NodeId, now: Time) -> Option<Arc<PeerState>> {
        let peers = self.peers.read();
        if let Some(peer) = peers.by_node.get(node) {
            return Some(Arc::clone(peer));
        }
        drop(peers);
        let Some(peer) = Peer::allowed(node, &self.allowed) else {
            self.log_blocked(node, now);
            return None;
        };
        let mut peers = self.peers.write();
        if peers.is_closed || !peers.has_room(&self.limits, now, &self.log) {
            return None;
        }
        let new = || Arc::new(PeerState::new(peer, self.limits, &self.log, now));
        self.peer_added.notify_one();
        Some(Arc::clone(peers.by_node.entry(node.clone()).or_insert_with(new)))
    }

    /// The nodes that pushes are sent to, and for which the condition holds, with the epochs of their breakers.
    fn called(&self, is_wanted: impl Fn(&NodeId) -> bool) -> Vec<(Arc<PeerState>, Epoch)> {
        let peers = self.peers.read();
        let wanted = peers.by_node.iter().filter(|(node, _)| is_wanted(node));
        wanted.filter_map(|(_, peer)| Some((Arc::clone(peer), peer.epoch()?))).collect()
    }

    /// Sends a request, and logs clocks that differ.
    async fn call(
        &self,
        peer: &Peer,
        request: PeerRequest,
        body: Bytes,
        wait: Duration,
    ) -> Result<StatusCode, CallError> {
        let result = self.caller.call(peer, request, body, wait).await;
        let clock_news = &self.caller.clock_news;
        if clock_news.load(Ordering::Relaxed) && self.clock_log.allows(self.ticks.now()) {
            clock_news.store(false, Ordering::Relaxed);
            self.clock_log.write(&self.clocks());
        }
        result
    }

    /// Of at most `nodes_max` nodes: the peers that have answered, and then callers. Empty without any.
    fn clocks(&self) -> ClockComparison {
        let peers = self.peers.read();
        let known = peers
            .by_node
            .iter()
            .filter_map(|(node, state)| Some((node.clone(), state.peer.clock.ahead()?)));
        let mut known: BTreeMap<_, _> = known.collect();
        drop(peers);
        for caller in self.callers.list(self.caller.clock.now()) {
            if known.len() < self.limits.nodes_max {
                let ahead = ClockDifference(caller.clock_ahead_s.saturating_mul(1000));
                known.entry(NodeId::new(&caller.name)).or_insert(ahead);
            }
        }
        match known.is_empty() {
            true => ClockComparison::default(),
            false => ClockComparison::of(known, self.limits.clock_skew),
        }
    }

    fn log_blocked(&self, node: &NodeId, now: Time) {
        if let Some(calls) = self.blocked_limiter.count(now) {
            // An attacker may write any name into a record: it must neither control a terminal nor
            // fill the log.
            let name = node.as_str().chars().take(LOGGED_CHARS_MAX);
            let name: String = name.flat_map(char::escape_default).collect();
            warn!(self.log, "a record names a node that nodes_allowed does not allow, so it is not called";
                "node" => name, "more" => calls - 1);
        }
    }

    fn wake_worker(self: &Arc<Self>, peer: &Arc<PeerState>) {
        peer.wake(|| {
            let worker = work(Arc::clone(self), Arc::clone(peer));
            self.runtime.spawn(worker).abort_handle()
        });
    }

    fn evict(&self, peer: &Arc<PeerState>) {
        let mut peers = self.peers.write();
        let node = peer.peer.address.node();
        if peers.by_node.get(node).is_some_and(|known| Arc::ptr_eq(known, peer)) {
            peers.by_node.remove(node);
        }
    }
}

impl PeerTable {
    /// Whether another node fits. A full table evicts unused nodes, and then unreachable ones.
    fn has_room(&mut self, limits: &RemoteLimits, now: Time, log: &Logger) -> bool {
        if self.by_node.len() < limits.nodes_max {
            return true;
        }
        if self.swept_at.is_none_or(|swept_at| now.since(swept_at) >= SWEEP_INTERVAL) {
            self.swept_at = Some(now);
            self.by_node.retain(|_, peer| !peer.close_if_idle(now));
            if self.by_node.len() >= limits.nodes_max {
                // Records may name nodes that do not exist: nodes that answer have precedence.
                self.by_node.retain(|_, peer| !peer.close_if_unreachable());
            }
        }
        let has_room = self.by_node.len() < limits.nodes_max;
        if !has_room && self.full_limiter.allow(now).is_some() {
            warn!(log, "records name more nodes than nodes_max, messages for agents of further nodes are stored";
                "nodes_max" => limits.nodes_max);
        }
        has_room
    }
}

/// The worker of a node: sends pending notifications, and probes while the breaker is open. Runs until there is nothing to
/// do for the node.
async fn work(shared: Arc<Shared>, peer: Arc<PeerState>) {
    loop {
        let now = shared.ticks.now();
        match peer.next(now) {
            NextAction::Idle => return,
            NextAction::Evict => return shared.evict(&peer),
            NextAction::Wait(until) => {
                let wait = Duration::from_millis(until.since(now).0);
                // Either way, the next action is determined again.
                let _ = timeout(wait, peer.recovered.notified()).await;
            }
            NextAction::Flush(epoch, notifications) => {
                let sent =
                    notifications.iter().map(|request| send(&shared, &peer, epoch, *request));
                let sent = join_all(sent).await;
                let failed = notifications.into_iter().zip(sent).filter(|(_, is_done)| !is_done);
                peer.requeue(failed.map(|(request, _)| request), shared.ticks.now());
            }
            NextAction::Probe(epoch) => {
                send(&shared, &peer, epoch, PeerRequest::MessageStored(PROBE_AGENT)).await;
            }
        }
    }
}

/// Introduces this node to the nodes that it calls, as long as it calls any. One that does not answer is found so although
/// no push is sent to it, and leaves the table once it is unused.
async fn introduce(nodes: Weak<Shared>, peer_added: Arc<Notify>, own: Introduction) {
    let mut introduced = HashMap::new();
    while let Some(shared) = nodes.upgrade() {
        let RemoteLimits { introduce_every: every, notification_wait: wait, .. } = shared.limits;
        let now = shared.ticks.now();
        introduced.retain(|_, at| now.since(*at) < every);
        let due = shared.called(|node| !introduced.contains_key(node));
        introduced.extend(due.iter().map(|(peer, _)| (peer.peer.address.node().clone(), now)));
        let calls =
            stream::iter(due).for_each_concurrent(NOTIFICATIONS_AT_ONCE, |(peer, epoch)| {
                let (shared, own) = (Arc::clone(&shared), own.clone());
                async move {
                    // Its time is compared with that of its arrival.
                    let time_ms = shared.caller.clock.now().0;
                    let body = Bytes::from(Introduction { time_ms, ..own }.to_text());
                    let request = PeerRequest::MessageStored(PROBE_AGENT);
                    let result = shared.call(&peer.peer, request, body, wait).await;
                    peer.finished(epoch, &result, shared.ticks.now());
                    shared.wake_worker(&peer);
                }
            });
        calls.await;
        let first_due = introduced.values().min().map(|at| *at + every);
        let wait = first_due.map_or(every, |due| due.since(shared.ticks.now()));
        drop(shared);
        // Either way, it is determined again which nodes are due.
        let _ = timeout(Duration::from_millis(wait.0), peer_added.notified()).await;
    }
}

/// Sends a notification. False if it must be repeated: no answer, or no capacity.
async fn send(shared: &Shared, peer: &PeerState, epoch: Epoch, request: PeerRequest) -> bool {
    let wait = shared.limits.notification_wait;
    let result = shared.call(&peer.peer, request, Bytes::new(), wait).await;
    peer.finished(epoch, &result, shared.ticks.now());
    !matches!(result, Err(_) | Ok(StatusCode::ACCEPTED | StatusCode::SERVICE_UNAVAILABLE))
}
