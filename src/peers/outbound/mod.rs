//! Other nodes, over HTTP: hands them messages, and tells them what they should know.
//!
//! What may go wrong on the way is all the same to a push: whatever is not a signed answer is
//! [`NodeAnswer::Unreachable`], and proves nothing. It also has its node left alone for a while, so that one dead node
//! does not cost every push a timeout. No push tries such a node: what attends to it does (`worker`).
//!
//! - `peer_state`: what is known of one node.
//! - `call`: one request.
//! - `outage`, `blocked_nodes`: what operators are told of nodes that are not reached, and of those that are not called.
//! - `router_url_check`: whether a node is reached where it says.
//! - `pending_notifications`: what a node is still to be told. It is kept in memory: what waits when this process ends, user agents
//!   find by themselves after `storage_recheck_s`.
//!
//! For a node that answers and is to be told nothing there is no task and no timer beside those of its connections.

mod blocked_nodes;
mod call;
mod limits;
mod outage;
mod peer_state;
mod pending_notifications;
mod router_url_check;
#[cfg(test)]
mod tests;
mod worker;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};

use actors::{Clock, NodeDirectory};
use bytes::Bytes;
use hyper::{Method, StatusCode};
use slog::{Logger, warn};
use state_machine::delivery::NodeAnswer;
use state_machine::{Message, NodeId, Span, Time, Uaid};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::address::AllowedNodes;
use super::signature::ClusterKeys;
use super::wire_message;
use blocked_nodes::BlockedNodes;
use call::{CallError, Caller, OutboundRequest, Peer};
pub use limits::RemoteLimits;
use peer_state::{PeerState, RequestPermit};
use pending_notifications::Notification;
pub use router_url_check::{PeerIdentity, RouterUrlCheck};

/// How often it is looked for nodes to forget, where there are too many.
const SWEEP_EVERY: Span = Span(100);

/// The other nodes, by the URLs of their router ports.
pub struct RemoteNodes {
    shared: Arc<Shared>,
}

struct Shared {
    allowed: AllowedNodes,
    limits: RemoteLimits,
    caller: Caller,
    peers: RwLock<PeerTable>,
    blocked_nodes: BlockedNodes,
    /// Time since this began, which nobody sets.
    ticks: Clock,
    /// Where nodes are attended to.
    home: Handle,
    log: Logger,
}

#[derive(Default)]
struct PeerTable {
    by_node: HashMap<NodeId, Arc<PeerState>>,
    swept_at: Option<Time>,
    /// When the log was told that there are too many.
    told_at: Option<Time>,
    is_closed: bool,
}

impl RemoteNodes {
    /// No node is known yet. Must be called in a runtime, which outlives it: nodes are attended to there.
    pub fn new(
        keys: Arc<ClusterKeys>,
        allowed: AllowedNodes,
        limits: RemoteLimits,
        clock: Clock,
        log: Logger,
    ) -> Self {
        let caller = Caller::new(keys, clock, &limits);
        let (peers, ticks) = (RwLock::default(), Clock::starting_at(Time(0)));
        let (blocked_nodes, home) = (BlockedNodes::new(limits.tell_every), Handle::current());
        let shared = Shared { allowed, limits, caller, peers, blocked_nodes, ticks, home, log };
        Self { shared: Arc::new(shared) }
    }

    /// Forgets all nodes, and knows none from now on. Pushes that are under way come to their end.
    pub fn close(&self) {
        let mut peers = self.shared.peers();
        peers.is_closed = true;
        peers.by_node.drain().for_each(|(_, peer_state)| peer_state.close());
    }

    fn notify(&self, node: &NodeId, notification: Notification) {
        let now = self.shared.ticks.now();
        if let Some(peer_state) = self.shared.peer_state(node, now) {
            peer_state.add(notification, now);
            self.shared.wake_worker(&peer_state);
        }
    }
}

impl NodeDirectory for RemoteNodes {
    /// Answered at once where the node is left alone or has enough to do. Whoever drops the answer cancels the request.
    fn deliver(
        &self,
        node: &NodeId,
        uaid: Uaid,
        message: Message,
    ) -> oneshot::Receiver<NodeAnswer> {
        let (reply, answer) = oneshot::channel();
        let now = self.shared.ticks.now();
        let peer_state = self.shared.peer_state(node, now).ok_or(NodeAnswer::Unreachable);
        match peer_state.and_then(|peer_state| peer_state.begin(now)) {
            Ok(permit) => {
                let ask = OutboundRequest {
                    method: Method::PUT,
                    path: format!("/push/{uaid}"),
                    body: Bytes::from(wire_message::to_bytes(&message)),
                };
                let push = push(Arc::clone(&self.shared), permit, ask, reply, now);
                // Connections belong to the thread that asks.
                Handle::try_current().unwrap_or_else(|_| self.shared.home.clone()).spawn(push);
            }
            // Whoever asked may have gone.
            Err(refused) => _ = reply.send(refused),
        }
        answer
    }

    fn notify_stored(&self, node: &NodeId, uaid: Uaid) {
        self.notify(node, Notification::MessageStored(uaid));
    }

    fn notify_moved(&self, node: &NodeId, uaid: Uaid, connected_at: Time) {
        self.notify(node, Notification::ConnectedElsewhere(uaid, connected_at));
    }
}

impl Drop for RemoteNodes {
    fn drop(&mut self) {
        self.close();
    }
}

/// One push, from the moment that it has a place.
async fn push(
    shared: Arc<Shared>,
    permit: RequestPermit,
    ask: OutboundRequest,
    mut reply: oneshot::Sender<NodeAnswer>,
    began: Time,
) {
    let RemoteLimits { push_wait, hang_after, .. } = shared.limits;
    let asked = tokio::select! {
        biased;
        result = shared.caller.call(&permit.peer_state.peer, ask, push_wait) => Some(result),
        () = reply.closed() => None,
    };
    let now = shared.ticks.now();
    let result = match asked {
        Some(result) => result,
        None if now.since(began) >= hang_after => Err(CallError::TimedOut(push_wait)),
        // The endpoint stores the message without us, and the node hears that by the end of the connection.
        None => return,
    };
    permit.peer_state.ended(permit.epoch, &result, now);
    if result.is_err() {
        shared.wake_worker(&permit.peer_state);
    }
    // Before the answer is known, so that whoever comes after it finds the place free.
    drop(permit);
    let answer = result.map_or(NodeAnswer::Unreachable, interpret);
    // Whoever asked may have gone.
    let _ = reply.send(answer);
}

/// What the signed answer to a push says.
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
    /// The peer_state to a node: none where it may not be called, or no more can be remembered.
    fn peer_state(&self, node: &NodeId, now: Time) -> Option<Arc<PeerState>> {
        // Nothing is left half-done where a thread could panic.
        let peers = self.peers.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(peer_state) = peers.by_node.get(node) {
            return Some(Arc::clone(peer_state));
        }
        drop(peers);
        let Some(peer) = Peer::allowed(node, &self.allowed) else {
            self.blocked_nodes.record(node, now, &self.log);
            return None;
        };
        let mut peers = self.peers();
        if peers.is_closed || !peers.has_room(&self.limits, now, &self.log) {
            return None;
        }
        let new = || Arc::new(PeerState::new(peer, self.limits, &self.log, now));
        Some(Arc::clone(peers.by_node.entry(node.clone()).or_insert_with(new)))
    }

    /// Has somebody attend to a node if there is something to do.
    fn wake_worker(self: &Arc<Self>, peer_state: &Arc<PeerState>) {
        peer_state.wake(|| {
            let worker = worker::run(Arc::clone(self), Arc::clone(peer_state));
            self.home.spawn(worker).abort_handle()
        });
    }

    fn forget(&self, peer_state: &Arc<PeerState>) {
        let mut peers = self.peers();
        let node = peer_state.peer.address.node();
        if peers.by_node.get(node).is_some_and(|known| Arc::ptr_eq(known, peer_state)) {
            peers.by_node.remove(node);
        }
    }

    fn peers(&self) -> RwLockWriteGuard<'_, PeerTable> {
        self.peers.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PeerTable {
    fn has_room(&mut self, limits: &RemoteLimits, now: Time, log: &Logger) -> bool {
        if self.by_node.len() < limits.nodes_max {
            return true;
        }
        if self.swept_at.is_none_or(|swept_at| now.since(swept_at) >= SWEEP_EVERY) {
            self.swept_at = Some(now);
            self.by_node.retain(|_, peer_state| !peer_state.close_if_idle(now));
            if self.by_node.len() >= limits.nodes_max {
                // Records may name whatever somebody wrote into them. Those that answer come first.
                self.by_node.retain(|_, peer_state| !peer_state.close_if_left_alone());
            }
        }
        let has_room = self.by_node.len() < limits.nodes_max;
        if !has_room && self.told_at.is_none_or(|told_at| now.since(told_at) >= limits.tell_every) {
            self.told_at = Some(now);
            warn!(log, "more nodes than are remembered, messages for the agents of the others are stored";
                "nodes_max" => limits.nodes_max);
        }
        has_room
    }
}
