//! Peers that answer nothing: the notifications of a session's connection are recorded.

use std::sync::Arc;

use actors::NodeDirectory;
use state_machine::connection::Effect;
use state_machine::delivery::NodeAnswer;
use state_machine::{Message, NodeId, Time, Uaid};
use tokio::sync::oneshot;

use super::record::Record;

/// The nodes around one session.
pub(crate) struct ScriptedNodes(pub(crate) Arc<Record>);

impl NodeDirectory for ScriptedNodes {
    fn deliver(&self, _: &NodeId, _: Uaid, _: Message) -> oneshot::Receiver<NodeAnswer> {
        self.0.note("node: a connection delivered a message".to_owned());
        oneshot::channel().1
    }

    fn notify_stored(&self, _: &NodeId, _: Uaid) {
        self.0.note("node: a connection was notified of a stored message".to_owned());
    }

    fn notify_moved(&self, node: &NodeId, uaid: Uaid, connected_at: Time) {
        self.0.ordered(&Effect::NotifyPreviousNode { node: node.clone(), uaid, connected_at });
    }
}
