//! Lookup of nodes: the one thing that differs between one process and many.

use state_machine::delivery::NodeAnswer;
use state_machine::{ClockComparison, Message, NodeId, Time, Uaid};
use tokio::sync::oneshot;

use crate::observe::PeerStatus;

/// Calls nodes by the names that router records hold.
pub trait NodeDirectory: Send + Sync {
    /// Delivers a message to a node. A reply that is dropped means [`NodeAnswer::Unreachable`].
    fn deliver(&self, node: &NodeId, uaid: Uaid, message: Message)
    -> oneshot::Receiver<NodeAnswer>;

    /// Notifies a node that a message was stored for `uaid`. It may be lost: connections check
    /// storage from time to time.
    fn notify_stored(&self, node: &NodeId, uaid: Uaid);

    /// Notifies a node that this agent connected elsewhere at `connected_at`. It may be lost: the
    /// record names the newer connection, so the older one gets no further push.
    fn notify_moved(&self, node: &NodeId, uaid: Uaid, connected_at: Time);

    /// The peers that this directory has called.
    fn peers(&self) -> Vec<PeerStatus> {
        Vec::new()
    }

    /// Calls a peer, so that its breaker opens if it does not answer.
    fn probe(&self, _node: &NodeId) {}

    /// The clocks of this node and of those that it knows by a call. Empty without such a node.
    fn clocks(&self) -> ClockComparison {
        ClockComparison::default()
    }
}

/// A directory without peers, which answers every push alike: [`NodeAnswer::NotHere`] if no
/// other node can exist, [`NodeAnswer::Unreachable`] if one may.
pub struct NoPeers(pub NodeAnswer);

impl NodeDirectory for NoPeers {
    fn deliver(&self, _: &NodeId, _: Uaid, _: Message) -> oneshot::Receiver<NodeAnswer> {
        let (reply, answer) = oneshot::channel();
        // The receiver is still here.
        let _ = reply.send(self.0);
        answer
    }

    fn notify_stored(&self, _: &NodeId, _: Uaid) {}

    fn notify_moved(&self, _: &NodeId, _: Uaid, _: Time) {}
}
