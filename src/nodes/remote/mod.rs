//! Other nodes, over HTTP: hands them messages, and tells them what they should know.
//!
//! What may go wrong on the way is all the same to a push: whatever is not a signed answer is
//! [`NodeAnswer::Unreachable`], and proves nothing. It also has its node left alone for a while, so that one dead node
//! does not cost every push a timeout. No push tries such a node: what attends to it does (`attend`).
//!
//! - `link`: what is known of one node.
//! - `call`: one request.
//! - `outage`, `strangers`: what operators are told of nodes that are not reached, and of those that are not called.
//! - `own_url`: whether a node is reached where it says.
//! - `errands`: what a node is still to be told. It is kept in memory: what waits when this process ends, user agents
//!   find by themselves after `storage_recheck_s`.
//!
//! For a node that answers and is to be told nothing there is no task and no timer beside those of its connections.

mod attend;
mod call;
mod errands;
mod limits;
mod link;
mod outage;
mod own_url;
mod strangers;
#[cfg(test)]
mod tests;

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
use super::letter;
use super::signature::ClusterKeys;
use call::{Ask, CallFailed, Caller, Peer};
use errands::Errand;
pub use limits::RemoteLimits;
use link::{Link, Slot};
pub use own_url::{Echo, OwnUrl};
use strangers::Strangers;

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
    links: RwLock<Links>,
    strangers: Strangers,
    /// Time since this began, which nobody sets.
    ticks: Clock,
    /// Where nodes are attended to.
    home: Handle,
    log: Logger,
}

#[derive(Default)]
struct Links {
    by_node: HashMap<NodeId, Arc<Link>>,
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
        let (links, ticks) = (RwLock::default(), Clock::starting_at(Time(0)));
        let (strangers, home) = (Strangers::new(limits.tell_every), Handle::current());
        let shared = Shared { allowed, limits, caller, links, strangers, ticks, home, log };
        Self { shared: Arc::new(shared) }
    }

    /// Forgets all nodes, and knows none from now on. Pushes that are under way come to their end.
    pub fn close(&self) {
        let mut links = self.shared.links();
        links.is_closed = true;
        links.by_node.drain().for_each(|(_, link)| link.close());
    }

    fn run_errand(&self, node: &NodeId, errand: Errand) {
        let now = self.shared.ticks.now();
        if let Some(link) = self.shared.link(node, now) {
            link.add(errand, now);
            self.shared.attend(&link);
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
        let link = self.shared.link(node, now).ok_or(NodeAnswer::Unreachable);
        match link.and_then(|link| link.begin(now)) {
            Ok(slot) => {
                let ask = Ask {
                    method: Method::PUT,
                    path: format!("/push/{uaid}"),
                    body: Bytes::from(letter::to_bytes(&message)),
                };
                let push = push(Arc::clone(&self.shared), slot, ask, reply, now);
                // Connections belong to the thread that asks.
                Handle::try_current().unwrap_or_else(|_| self.shared.home.clone()).spawn(push);
            }
            // Whoever asked may have gone.
            Err(refused) => _ = reply.send(refused),
        }
        answer
    }

    fn nudge(&self, node: &NodeId, uaid: Uaid) {
        self.run_errand(node, Errand::Stored(uaid));
    }

    fn tell_moved(&self, node: &NodeId, uaid: Uaid, connected_at: Time) {
        self.run_errand(node, Errand::Moved(uaid, connected_at));
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
    slot: Slot,
    ask: Ask,
    mut reply: oneshot::Sender<NodeAnswer>,
    began: Time,
) {
    let RemoteLimits { push_wait, hang_after, .. } = shared.limits;
    let asked = tokio::select! {
        biased;
        result = shared.caller.ask(&slot.link.peer, ask, push_wait) => Some(result),
        () = reply.closed() => None,
    };
    let now = shared.ticks.now();
    let result = match asked {
        Some(result) => result,
        None if now.since(began) >= hang_after => Err(CallFailed::TimedOut(push_wait)),
        // The endpoint stores the message without us, and the node hears that by the end of the connection.
        None => return,
    };
    slot.link.ended(slot.round, &result, now);
    if result.is_err() {
        shared.attend(&slot.link);
    }
    // Before the answer is known, so that whoever comes after it finds the place free.
    drop(slot);
    let answer = result.map_or(NodeAnswer::Unreachable, meaning);
    // Whoever asked may have gone.
    let _ = reply.send(answer);
}

/// What the signed answer to a push says.
fn meaning(status: StatusCode) -> NodeAnswer {
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
    /// The link to a node: none where it may not be called, or no more can be remembered.
    fn link(&self, node: &NodeId, now: Time) -> Option<Arc<Link>> {
        // Nothing is left half-done where a thread could panic.
        let links = self.links.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(link) = links.by_node.get(node) {
            return Some(Arc::clone(link));
        }
        drop(links);
        let Some(peer) = Peer::allowed(node, &self.allowed) else {
            self.strangers.met(node, now, &self.log);
            return None;
        };
        let mut links = self.links();
        if links.is_closed || !links.has_room(&self.limits, now, &self.log) {
            return None;
        }
        let new = || Arc::new(Link::new(peer, self.limits, &self.log, now));
        Some(Arc::clone(links.by_node.entry(node.clone()).or_insert_with(new)))
    }

    /// Has somebody attend to a node if there is something to do.
    fn attend(self: &Arc<Self>, link: &Arc<Link>) {
        link.wake(|| {
            let attending = attend::attend(Arc::clone(self), Arc::clone(link));
            self.home.spawn(attending).abort_handle()
        });
    }

    fn forget(&self, link: &Arc<Link>) {
        let mut links = self.links();
        let node = link.peer.address.node();
        if links.by_node.get(node).is_some_and(|known| Arc::ptr_eq(known, link)) {
            links.by_node.remove(node);
        }
    }

    fn links(&self) -> RwLockWriteGuard<'_, Links> {
        self.links.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Links {
    fn has_room(&mut self, limits: &RemoteLimits, now: Time, log: &Logger) -> bool {
        if self.by_node.len() < limits.nodes_max {
            return true;
        }
        if self.swept_at.is_none_or(|swept_at| now.since(swept_at) >= SWEEP_EVERY) {
            self.swept_at = Some(now);
            self.by_node.retain(|_, link| !link.close_if_idle(now));
            if self.by_node.len() >= limits.nodes_max {
                // Records may name whatever somebody wrote into them. Those that answer come first.
                self.by_node.retain(|_, link| !link.close_if_left_alone());
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
