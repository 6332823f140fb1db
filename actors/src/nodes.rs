//! Where connection nodes are: the one thing that differs between one process and many.

use actix::Addr;
use actix::dev::SendError;
use state_machine::delivery::NodeAnswer;
use state_machine::{Message, NodeId, Time, Uaid};
use tokio::sync::oneshot;

use crate::handle::DirectPush;
use crate::registry::{ConnectedElsewhere, MessageStored, RegistryActor};

/// Reaches connection nodes by the name that router records hold.
pub trait NodeDirectory: Send + Sync {
    /// Hands a message to a node. An answer that never comes is [`NodeAnswer::Unreachable`].
    fn deliver(&self, node: &NodeId, uaid: Uaid, message: Message)
    -> oneshot::Receiver<NodeAnswer>;

    /// Tells a node that a message was stored for `uaid`. Nothing depends on it being heard:
    /// connections look into storage by themselves now and then.
    fn notify_stored(&self, node: &NodeId, uaid: Uaid);

    /// Tells a node that this agent is connected elsewhere since `connected_at`. Nothing depends on it
    /// being heard: the record names the newer connection, so no push comes to the older one.
    fn notify_moved(&self, node: &NodeId, uaid: Uaid, connected_at: Time);
}

/// This process, and no way to any other.
pub struct LocalNode {
    name: NodeId,
    registry: Addr<RegistryActor>,
    foreign_answer: NodeAnswer,
}

impl LocalNode {
    /// This process, under the name its router records carry.
    ///
    /// `foreign_answer` is answered for a record that names another node: [`NodeAnswer::NotHere`] where there
    /// cannot be one, [`NodeAnswer::Unreachable`] where there may be.
    pub fn new(name: NodeId, registry: Addr<RegistryActor>, foreign_answer: NodeAnswer) -> Self {
        Self { name, registry, foreign_answer }
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
            let _ = reply.send(self.foreign_answer);
            return answer;
        }
        match self.registry.try_send(DirectPush { uaid, message, reply }) {
            Ok(()) => {}
            Err(SendError::Full(push) | SendError::Closed(push)) => {
                let _ = push.reply.send(NodeAnswer::Unreachable);
            }
        }
        answer
    }

    fn notify_stored(&self, node: &NodeId, uaid: Uaid) {
        if *node == self.name {
            // Refused: the registry is overrun. The connection's own recheck finds the message.
            drop(self.registry.try_send(MessageStored { uaid }));
        }
    }
    fn notify_moved(&self, node: &NodeId, uaid: Uaid, connected_at: Time) {
        if *node == self.name {
            // Refused: the older connection stays until its agent's socket ends.
            drop(self.registry.try_send(ConnectedElsewhere { uaid, connected_at }));
        }
    }
}
