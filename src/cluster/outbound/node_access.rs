//! Asks nodes on behalf of an operator, from any process that has the cluster keys. A node asks itself, for an agent that
//! only its own router port knows: so it learns whether its name leads to it.

use std::sync::Arc;

use actors::Clock;
use bytes::Bytes;
use hyper::StatusCode;
use state_machine::{ClockComparison, ClockDifference, NodeId, Uaid};

use super::call::{Answered, Caller};
use super::limits::RemoteLimits;
use super::peer::Peer;
use crate::cluster::about::AboutNode;
use crate::cluster::callers::Callers;
use crate::cluster::request::PeerRequest;
use crate::cluster::signature::ClusterKeys;
use crate::settings::Settings;
use crate::settings::keys::Keys;
use crate::system::node_address::AllowedNodes;

/// Asks nodes. It does not affect the breaker of any node.
#[derive(Clone)]
pub struct NodeAccess {
    pub(super) keys: Arc<ClusterKeys>,
    pub(super) allowed: AllowedNodes,
    pub(super) limits: RemoteLimits,
    /// The nodes that call this process: none of them if it is no connection node.
    pub callers: Arc<Callers>,
}

/// The process that answers under the name of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerIdentity {
    /// The one that knows the agent.
    ThisNode,
    /// Another node of the cluster, which has the same name.
    OtherNode,
    /// No node of the cluster answers, for this reason.
    Unreachable(String),
}

/// What an operator learns of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerAnswer {
    pub identity: PeerIdentity,
    /// How far its clock is ahead, if it answers.
    pub ahead: Option<ClockDifference>,
    /// What it says of itself. None of an agent's node, and of a node of before 29 November 2026.
    pub about: Option<AboutNode>,
}

impl NodeAccess {
    /// None without cluster keys.
    pub fn of(keys: &Keys, settings: &Settings) -> Option<Self> {
        let keys = Arc::new(ClusterKeys::derive(keys)?);
        let (allowed, limits) = (settings.nodes_allowed.clone(), settings.into());
        Some(Self { keys, allowed, limits, callers: Arc::default() })
    }

    pub fn with_callers(self, callers: Arc<Callers>) -> Self {
        Self { callers, ..self }
    }

    /// Notifies the node of a message for the agent: [`PeerIdentity::ThisNode`] if the agent is connected there. An
    /// agent that is looks into storage once more.
    pub async fn ask(&self, node: NodeId, uaid: Uaid, clock: Clock) -> PeerAnswer {
        let Some(peer) = Peer::allowed(&node, &self.allowed) else {
            let why = "nodes_allowed does not allow it".to_owned();
            let identity = PeerIdentity::Unreachable(why);
            return PeerAnswer { identity, ahead: None, about: None };
        };
        // A kept connection may lead to a process that no longer listens under the name.
        let limits = RemoteLimits { connections_idle_max: 0, ..self.limits };
        let caller = Caller::new(Arc::clone(&self.keys), clock, &limits);
        let request = PeerRequest::MessageStored(uaid);
        let answer = caller.ask(&peer, request, Bytes::new(), limits.notification_wait).await;
        let (identity, about) = match answer {
            Ok(Answered { status: StatusCode::OK, about }) => (PeerIdentity::ThisNode, about),
            // Any other status: the process accepted a signature for this name.
            Ok(Answered { about, .. }) => (PeerIdentity::OtherNode, about),
            Err(error) => (PeerIdentity::Unreachable(error.to_string()), None),
        };
        PeerAnswer { identity, ahead: peer.clock.ahead(), about }
    }

    /// Compares the clocks of nodes that were asked with that of this process.
    pub fn compare(&self, ahead: Vec<(NodeId, ClockDifference)>) -> ClockComparison {
        ClockComparison::of(ahead, self.limits.clock_skew)
    }
}
