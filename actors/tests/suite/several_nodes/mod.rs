//! Several nodes on one store: agents that move between them, ways that fail, and nodes that end.

mod draining;
mod moving;
mod ways;

use actix_web::rt::task::JoinHandle;
use state_machine::delivery::Outcome;
use state_machine::{MessageId, NodeId, RouterRecord, Time, Uaid};

use crate::clockwork::settle;
use crate::node::{Bounds, Ground, Node, UserAgent, Way};

/// Two nodes that hold connections, and one that only sends.
struct Places {
    ground: Ground,
    a: Node,
    b: Node,
    sender: Node,
}

impl Places {
    async fn new() -> Self {
        Self::with_clocks(0, 0).await
    }

    /// The clocks of the nodes are so many milliseconds ahead.
    async fn with_clocks(a_ms: u64, b_ms: u64) -> Self {
        let ground = Ground::on_disk().await;
        let node = |name, ahead_ms| {
            let bounds = Bounds::default();
            let now = Time(bounds.now.0 + ahead_ms);
            Node::on(&ground, &Bounds { name, now, ..bounds })
        };
        Self { a: node("a", a_ms), b: node("b", b_ms), sender: node("sender", 0), ground }
    }

    fn set_way(&self, to: &str, way: Way) {
        self.ground.neighbours.set_way(&NodeId::new(to), way);
    }

    async fn record(&self, uaid: Uaid) -> RouterRecord {
        self.ground.store.record(uaid).await.unwrap().unwrap()
    }

    /// The node that an agent's record names.
    async fn node_of(&self, uaid: Uaid) -> Option<String> {
        self.record(uaid).await.node.map(|node| node.to_string())
    }

    /// An agent of node `a` with a message that it has not acked, and the outcome of that.
    async fn with_unacked(&self) -> (UserAgent, MessageId, JoinHandle<Outcome>) {
        let mut agent = UserAgent::new(&self.a, 1).await;
        let (id, sent) = self.sender.sends(&mut agent).await;
        (agent, id, sent)
    }

    /// The agent gets these, in some order, and acks them; then nothing is left for it.
    async fn takes_all(&self, agent: &mut UserAgent, messages: &[MessageId]) {
        let mut expected = messages.to_vec();
        while !expected.is_empty() {
            let id = agent.is_notified().await;
            agent.acks(id);
            let at = expected.iter().position(|message| *message == id);
            expected.swap_remove(at.expect("one that was sent to it, once"));
        }
        self.sender.until_nothing_is_stored(agent.uaid).await;
        settle().await;
        agent.heard_nothing_more();
    }
}
