//! Asks nodes on behalf of an operator, from any process that has the cluster keys.

use std::sync::Arc;

use actors::Clock;
use state_machine::{ClockComparison, ClockDifference, NodeId, Uaid};

use super::limits::RemoteLimits;
use super::router_url_check::{PeerIdentity, RouterUrlCheck};
use crate::cluster::signature::ClusterKeys;
use crate::settings::Settings;
use crate::settings::keys::Keys;
use crate::system::node_address::AllowedNodes;

#[derive(Clone)]
pub struct NodeAccess {
    keys: Arc<ClusterKeys>,
    allowed: AllowedNodes,
    limits: RemoteLimits,
}

impl NodeAccess {
    /// None without cluster keys.
    pub fn of(keys: &Keys, settings: &Settings) -> Option<Self> {
        let keys = Arc::new(ClusterKeys::derive(keys)?);
        Some(Self { keys, allowed: settings.nodes_allowed.clone(), limits: settings.into() })
    }

    /// Notifies the node of a message for the agent: [`PeerIdentity::ThisNode`] if the agent is connected there. An
    /// agent that is looks into storage once more. With it comes how far the clock of a node that answers is ahead.
    pub async fn ask(
        &self,
        node: NodeId,
        uaid: Uaid,
        clock: Clock,
    ) -> (PeerIdentity, Option<ClockDifference>) {
        let keys = Arc::clone(&self.keys);
        let check = RouterUrlCheck::new(node, uaid, keys, &self.allowed, self.limits, clock);
        let identity = check.ask().await;
        (identity, check.clock_ahead())
    }

    /// Compares the clocks of nodes that were asked with that of this process.
    pub fn compare(&self, ahead: Vec<(NodeId, ClockDifference)>) -> ClockComparison {
        ClockComparison::of(ahead, self.limits.clock_skew)
    }
}
