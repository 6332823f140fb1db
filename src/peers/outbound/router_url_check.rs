//! Whether a node is reached by its own name. It asks as another node would, for an agent that only itself knows.

use std::sync::Arc;

use actors::Clock;
use hyper::StatusCode;
use state_machine::{NodeId, Uaid};

use super::call::{Caller, Peer};
use super::limits::RemoteLimits;
use super::pending_notifications::Notification;
use super::worker;
use crate::peers::address::AllowedNodes;
use crate::peers::signature::ClusterKeys;

/// The URL of a node's own router port. What comes of asking it is no other node's business: nothing is left alone
/// because of it.
pub struct RouterUrlCheck {
    node: NodeId,
    /// None where it may not be called.
    peer: Option<Peer>,
    instance: Uaid,
    caller: Caller,
    limits: RemoteLimits,
}

/// Who answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerIdentity {
    /// The process that asked.
    ThisNode,
    /// Another node, which has the same name.
    OtherNode,
    /// Nobody of this cluster: why.
    Unreachable(String),
}

impl RouterUrlCheck {
    /// The URL of `node`, whose router port knows `instance`.
    pub fn new(
        node: NodeId,
        instance: Uaid,
        keys: Arc<ClusterKeys>,
        allowed: &AllowedNodes,
        limits: RemoteLimits,
        clock: Clock,
    ) -> Self {
        // A kept connection would lead to who was there the last time.
        let limits = RemoteLimits { connections_idle_max: 0, ..limits };
        let (peer, caller) = (Peer::allowed(&node, allowed), Caller::new(keys, clock, &limits));
        Self { node, peer, instance, caller, limits }
    }

    /// The URL.
    pub fn node(&self) -> &NodeId {
        &self.node
    }

    /// Asks who is there.
    pub async fn ask(&self) -> PeerIdentity {
        let Some(peer) = &self.peer else {
            return PeerIdentity::Unreachable("nodes_allowed does not have it".to_owned());
        };
        let ask = worker::request_of(Notification::MessageStored(self.instance));
        match self.caller.call(peer, ask, self.limits.notification_wait).await {
            Ok(StatusCode::OK) => PeerIdentity::ThisNode,
            // Whatever it says: it took what was signed for this name.
            Ok(_) => PeerIdentity::OtherNode,
            Err(error) => PeerIdentity::Unreachable(error.to_string()),
        }
    }
}
