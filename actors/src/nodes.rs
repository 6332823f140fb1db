//! Lookup of nodes: the one thing that differs between one process and many.

use std::sync::Arc;

use state_machine::delivery::NodeAnswer;
use state_machine::{ClockComparison, Message, NodeId, Time, Uaid};
use tokio::sync::oneshot;

use crate::handle::DirectPush;
use crate::mailbox::BoundedAddr;
use crate::observe::{ClientCounters, PeerStatus};
use crate::registry::{ConnectedElsewhere, LiveConnections, MessageStored, RegistryActor};

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

    /// The clocks of this node and of the peers that have answered it. Empty without such a peer.
    fn clocks(&self) -> ClockComparison {
        ClockComparison::default()
    }
}

/// A directory without peers, which answers every push alike: [`NodeAnswer::NotHere`] if no
/// other node can exist, [`NodeAnswer::Unreachable`] if one may.
pub struct NoPeers(pub NodeAnswer);

/// The lookup that a registry hands out: a uaid on this node is found among its connections, the
/// name of another node among its peers.
///
/// Both are shared with the registry and called directly, so that a push to a connected agent takes
/// no mailbox on its way but its client's.
#[derive(Clone)]
pub struct Directory {
    /// The name of this node in router records; none if agents cannot connect.
    pub(crate) own: Option<NodeId>,
    pub(crate) registry: BoundedAddr<RegistryActor>,
    pub(crate) connections: LiveConnections,
    pub(crate) clients: Arc<ClientCounters>,
    pub(crate) peers: Arc<dyn NodeDirectory>,
}

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

impl Directory {
    /// The registry that handed it out.
    pub fn registry(&self) -> &BoundedAddr<RegistryActor> {
        &self.registry
    }

    /// Delivers a push to an agent of this node. Its reply is dropped if the agent is not found and the registry cannot
    /// be asked: that proves nothing about the agent.
    pub fn deliver_here(&self, push: DirectPush) {
        if let Err(push) = self.connections.deliver(push) {
            drop(self.registry.try_send(*push));
        }
    }

    /// The counters that the clients of this node move.
    pub fn clients(&self) -> &Arc<ClientCounters> {
        &self.clients
    }

    /// The name of this node in router records; none if agents cannot connect.
    pub fn own(&self) -> Option<&NodeId> {
        self.own.as_ref()
    }

    fn is_own(&self, node: &NodeId) -> bool {
        self.own.as_ref() == Some(node)
    }
}

impl NodeDirectory for Directory {
    fn deliver(
        &self,
        node: &NodeId,
        uaid: Uaid,
        message: Message,
    ) -> oneshot::Receiver<NodeAnswer> {
        if !self.is_own(node) {
            return self.peers.deliver(node, uaid, message);
        }
        let (reply, answer) = oneshot::channel();
        self.deliver_here(DirectPush { uaid, message, reply });
        answer
    }

    fn notify_stored(&self, node: &NodeId, uaid: Uaid) {
        if !self.is_own(node) {
            return self.peers.notify_stored(node, uaid);
        }
        // If the registry's mailbox is full, the connection's next storage scan finds the message.
        drop(self.registry.try_send(MessageStored { uaid }));
    }

    fn notify_moved(&self, node: &NodeId, uaid: Uaid, connected_at: Time) {
        if !self.is_own(node) {
            return self.peers.notify_moved(node, uaid, connected_at);
        }
        // If the registry's mailbox is full, the older connection stays until its socket closes.
        drop(self.registry.try_send(ConnectedElsewhere { uaid, connected_at }));
    }

    fn peers(&self) -> Vec<PeerStatus> {
        self.peers.peers()
    }

    fn clocks(&self) -> ClockComparison {
        self.peers.clocks()
    }
}
