//! Where connection nodes are: the one thing that differs between one process and many.

use actix::Addr;
use actix::dev::SendError;
use state_machine::delivery::NodeAnswer;
use state_machine::{Message, NodeId, Uaid};
use tokio::sync::oneshot;

use crate::reach::Push;
use crate::registry::{Nudge, RegistryActor};

/// Reaches connection nodes by the name that router records hold.
pub trait NodeDirectory: Send + Sync {
    /// Hands a message to a node. An answer that never comes is [`NodeAnswer::Unreachable`].
    fn deliver(&self, node: &NodeId, uaid: Uaid, message: Message)
    -> oneshot::Receiver<NodeAnswer>;

    /// Tells a node that a message was stored for `uaid`. Nothing depends on it being heard:
    /// connections look into storage by themselves now and then.
    fn nudge(&self, node: &NodeId, uaid: Uaid);
}

/// The only node there is: this process.
pub struct LocalNode {
    name: NodeId,
    registry: Addr<RegistryActor>,
}

impl LocalNode {
    /// This process, under the name its router records carry.
    pub fn new(name: NodeId, registry: Addr<RegistryActor>) -> Self {
        Self { name, registry }
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
            // A record written under another name: nobody is there any more.
            let _ = reply.send(NodeAnswer::NotHere);
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
}
