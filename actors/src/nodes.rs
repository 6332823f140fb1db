//! Where connection nodes are: the one thing that differs between one process and many.

use actix::Addr;
use actix::dev::SendError;
use state_machine::delivery::NodeAnswer;
use state_machine::{Message, NodeId, Time, Uaid};
use tokio::sync::oneshot;

use crate::reach::Push;
use crate::registry::{ConnectedElsewhere, Nudge, RegistryActor};

/// Reaches connection nodes by the name that router records hold.
pub trait NodeDirectory: Send + Sync {
    /// Hands a message to a node. An answer that never comes is [`NodeAnswer::Unreachable`].
    fn deliver(&self, node: &NodeId, uaid: Uaid, message: Message)
    -> oneshot::Receiver<NodeAnswer>;

    /// Tells a node that a message was stored for `uaid`. Nothing depends on it being heard:
    /// connections look into storage by themselves now and then.
    fn nudge(&self, node: &NodeId, uaid: Uaid);

    /// Tells a node that this agent is connected elsewhere since `connected_at`. Nothing depends on it
    /// being heard: the record names the newer connection, so no push comes to the older one.
    fn tell_moved(&self, node: &NodeId, uaid: Uaid, connected_at: Time);
}

/// This process, and no way to any other.
pub struct LocalNode {
    name: NodeId,
    registry: Addr<RegistryActor>,
    of_others: NodeAnswer,
}

impl LocalNode {
    /// This process, under the name its router records carry.
    ///
    /// `of_others` is answered for a record that names another node: [`NodeAnswer::NotHere`] where there
    /// cannot be one, [`NodeAnswer::Unreachable`] where there may be.
    pub fn new(name: NodeId, registry: Addr<RegistryActor>, of_others: NodeAnswer) -> Self {
        Self { name, registry, of_others }
    }
}

impl NodeDirectory for LocalNode {
    fn deliver(
        &self,
        node: &NodeId,
        uaid: Uaid,
        message: Message,
    ) -> oneshot::Receiver<NodeAnswer> {
        let (reply, answer) = oneshot::channel();
        if *node != self.name {
            let _ = reply.send(self.of_others);
            return answer;
        }
        match self.registry.try_send(Push { uaid, message, reply }) {
            Ok(()) => {}
            Err(SendError::Full(push) | SendError::Closed(push)) => {
                let _ = push.reply.send(NodeAnswer::Unreachable);
            }
        }
        answer
    }

    fn nudge(&self, node: &NodeId, uaid: Uaid) {
        if *node == self.name {
            // Refused: the registry is overrun. The connection's own recheck finds the message.
            drop(self.registry.try_send(Nudge { uaid }));
        }
    }
    fn tell_moved(&self, node: &NodeId, uaid: Uaid, connected_at: Time) {
        if *node == self.name {
            // Refused: the older connection stays until its agent's socket ends.
            drop(self.registry.try_send(ConnectedElsewhere { uaid, connected_at }));
        }
    }
}
