//! Several nodes that reach each other by name.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use actors::{LocalNode, NodeDirectory};
use state_machine::delivery::NodeAnswer;
use state_machine::{Message, NodeId, Uaid};
use tokio::sync::oneshot;

/// The nodes there are. Clones are one neighbourhood.
#[derive(Clone, Default)]
pub(crate) struct Neighbours(Arc<Mutex<BTreeMap<NodeId, Arc<LocalNode>>>>);

impl Neighbours {
    /// A node is reached from now on; one of the same name is not any more.
    pub(crate) fn join(&self, name: NodeId, node: &Arc<LocalNode>) {
        self.0.lock().unwrap().insert(name, Arc::clone(node));
    }

    fn find(&self, name: &NodeId) -> Option<Arc<LocalNode>> {
        self.0.lock().unwrap().get(name).cloned()
    }
}

impl NodeDirectory for Neighbours {
    fn deliver(
        &self,
        name: &NodeId,
        uaid: Uaid,
        message: Message,
    ) -> oneshot::Receiver<NodeAnswer> {
        match self.find(name) {
            Some(node) => node.deliver(name, uaid, message),
            // Dropped without an answer: unreachable.
            None => oneshot::channel().1,
        }
    }

    fn nudge(&self, name: &NodeId, uaid: Uaid) {
        if let Some(node) = self.find(name) {
            node.nudge(name, uaid);
        }
    }
}
