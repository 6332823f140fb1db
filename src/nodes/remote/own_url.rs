//! Whether a node is reached by its own name. It asks as another node would, for an agent that only itself knows.

use std::sync::Arc;

use actors::Clock;
use hyper::StatusCode;
use state_machine::{NodeId, Uaid};

use super::attend;
use super::call::{Caller, Peer};
use super::errands::Errand;
use super::limits::RemoteLimits;
use crate::nodes::address::AllowedNodes;
use crate::nodes::signature::ClusterKeys;

/// The URL of a node's own router port. What comes of asking it is no other node's business: nothing is left alone
/// because of it.
pub struct OwnUrl {
    node: NodeId,
    /// None where it may not be called.
    peer: Option<Peer>,
    instance: Uaid,
    caller: Caller,
    limits: RemoteLimits,
}

/// Who answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Echo {
    /// The process that asked.
    Itself,
    /// Another node, which has the same name.
    Another,
    /// Nobody of this cluster: why.
    Nobody(String),
}

impl OwnUrl {
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
    pub async fn ask(&self) -> Echo {
        let Some(peer) = &self.peer else {
            return Echo::Nobody("nodes_allowed does not have it".to_owned());
        };
        let ask = attend::ask(Errand::Stored(self.instance));
        match self.caller.ask(peer, ask, self.limits.errand_wait).await {
            Ok(StatusCode::OK) => Echo::Itself,
            // Whatever it says: it took what was signed for this name.
            Ok(_) => Echo::Another,
            Err(error) => Echo::Nobody(error.to_string()),
        }
    }
}
