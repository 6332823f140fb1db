//! The lookup of all nodes: the connections of this one, and its peers.

use std::sync::Arc;

use state_machine::delivery::NodeAnswer;
use state_machine::{ClockComparison, Message, NodeId, Time, Uaid};
use tokio::sync::oneshot;

use crate::handle::DirectPush;
use crate::mailbox::BoundedAddr;
use crate::nodes::NodeDirectory;
use crate::observe::{ClientCounters, PeerStatus};
use crate::registry::{ConnectedElsewhere, LiveConnections, MessageStored, RegistryActor};

/// The lookup of all nodes: a uaid on this node is found among its connections, the
/// name of another node among its peers.
///
/// Both are shared with the registry and called directly, so that a push to a connected agent takes
/// no mailbox on its way but its client's.
#[derive(Clone)]
pub struct Directory {
    /// The name of this node in router records; none if agents cannot connect.
    own: Option<NodeId>,
    registry: BoundedAddr<RegistryActor>,
    connections: LiveConnections,
    clients: Arc<ClientCounters>,
    peers: Arc<dyn NodeDirectory>,
}

impl Directory {
    /// Starts the registry on the current arbiter. `own` is the name of this node in router records; none
    /// if agents cannot connect.
    pub fn start(registry: RegistryActor, own: Option<NodeId>) -> Self {
        let connections = registry.connections.clone();
        let (clients, peers) = (Arc::clone(&registry.clients), Arc::clone(&registry.peers));
        Self { own, registry: BoundedAddr::start(registry), connections, clients, peers }
    }

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

    fn probe(&self, node: &NodeId) {
        self.peers.probe(node);
    }

    fn clocks(&self) -> ClockComparison {
        self.peers.clocks()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::StreamExt;
    use slog::{Discard, Logger, o};
    use state_machine::{Chid, ConnectionId, MessageId, Span};
    use tokio::task::LocalSet;
    use tokio::time::timeout;

    use super::*;
    use crate::handle::{ClientHandle, ClientMail, ClientMailbox, Inbox};
    use crate::nodes::NoPeers;
    use crate::registry::{CountConnections, Register};

    const AGENT: Uaid = Uaid([1; 16]);

    fn directory(here: &NodeId) -> Directory {
        let peers = Arc::new(NoPeers(NodeAnswer::NotHere));
        let registry = RegistryActor::new(16, peers, Logger::root(Discard, o!()));
        Directory::start(registry, Some(here.clone()))
    }

    /// Sends a registration, which the registry handles when this test waits.
    fn register(directory: &Directory, number: u64) -> Arc<ClientMailbox> {
        let mailbox = Arc::new(ClientMailbox::new(16));
        let handle = ClientHandle::new(Arc::clone(&mailbox));
        let connection = ConnectionId(number);
        directory.registry().try_send(Register { uaid: AGENT, connection, handle }).unwrap();
        mailbox
    }

    fn message() -> Message {
        let id = MessageId::from_uuid_v7(7, false);
        Message::new(id, Chid([2; 16]), Time(1), Span::from_secs(60))
    }

    #[tokio::test(start_paused = true)]
    async fn a_push_that_overtakes_the_registration_of_its_agent_reaches_it() {
        let test = async {
            let here = NodeId::new("here");
            let directory = directory(&here);
            let ended = register(&directory, 1);
            directory.registry().send(CountConnections).await.unwrap();
            ended.close();
            let connected = register(&directory, 2);
            let answer = directory.deliver(&here, AGENT, message());
            let mail = timeout(Duration::from_secs(1), Inbox(connected).next()).await;
            assert!(matches!(mail, Ok(Some(ClientMail::Push(_)))), "{mail:?}, {answer:?}");
        };
        LocalSet::new().run_until(test).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_push_to_a_connection_that_ended_is_not_here_and_forgets_it() {
        let test = async {
            let here = NodeId::new("here");
            let directory = directory(&here);
            register(&directory, 1).close();
            let answer = directory.deliver(&here, AGENT, message());
            assert_eq!(answer.await, Ok(NodeAnswer::NotHere));
            assert_eq!(directory.registry().send(CountConnections).await, Ok(0));
        };
        LocalSet::new().run_until(test).await;
    }
}
