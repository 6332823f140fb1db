//! Checks whether a node can be reached by its own name: it sends itself a request for an agent
//! that only its own router port knows.

use std::sync::Arc;

use actors::Clock;
use bytes::Bytes;
use hyper::StatusCode;
use state_machine::{ClockDifference, NodeId, Uaid};

use super::call::{Caller, Peer};
use super::limits::RemoteLimits;
use crate::cluster::request::PeerRequest;
use crate::cluster::signature::ClusterKeys;
use crate::system::node_address::AllowedNodes;

/// The check of one router URL. It does not affect the breaker of any node.
pub struct RouterUrlCheck {
    node: NodeId,
    /// None if the node must not be called.
    peer: Option<Peer>,
    instance: Uaid,
    caller: Caller,
    limits: RemoteLimits,
}

/// The process that answers under the checked name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerIdentity {
    ThisNode,
    /// Another node of the cluster, which has the same name.
    OtherNode,
    /// No node of the cluster answers, for this reason.
    Unreachable(String),
}

impl RouterUrlCheck {
    /// Checks the URL of `node`, whose router port knows `instance`.
    pub fn new(
        node: NodeId,
        instance: Uaid,
        keys: Arc<ClusterKeys>,
        allowed: &AllowedNodes,
        limits: RemoteLimits,
        clock: Clock,
    ) -> Self {
        // A kept connection may lead to a process that no longer listens under the name.
        let limits = RemoteLimits { connections_idle_max: 0, ..limits };
        let (peer, caller) = (Peer::allowed(&node, allowed), Caller::new(keys, clock, &limits));
        Self { node, peer, instance, caller, limits }
    }

    pub fn node(&self) -> &NodeId {
        &self.node
    }

    /// How far the clock of the process that answered last is ahead. None without an answer.
    pub fn clock_ahead(&self) -> Option<ClockDifference> {
        self.peer.as_ref().and_then(|peer| peer.clock.ahead())
    }

    pub async fn ask(&self) -> PeerIdentity {
        let Some(peer) = &self.peer else {
            return PeerIdentity::Unreachable("nodes_allowed does not allow it".to_owned());
        };
        let request = PeerRequest::MessageStored(self.instance);
        match self.caller.call(peer, request, Bytes::new(), self.limits.notification_wait).await {
            Ok(StatusCode::OK) => PeerIdentity::ThisNode,
            // Any other status: the process accepted a signature for this name.
            Ok(_) => PeerIdentity::OtherNode,
            Err(error) => PeerIdentity::Unreachable(error.to_string()),
        }
    }
}
