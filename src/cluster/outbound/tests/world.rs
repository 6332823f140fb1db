//! A directory of other nodes, and its log.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use actors::{Clock, NodeDirectory};
use state_machine::breaker::BreakerLimits;
use state_machine::delivery::NodeAnswer;
use state_machine::{ClockDifference, NodeId, Span, Time, Uaid};
use tokio::sync::{oneshot, watch};
use tokio::task::yield_now;
use tokio::time::timeout;

use super::node::{Act, Node};
use crate::cluster::callers::Callers;
use crate::cluster::fixture::{KEY, LONG, Log, NOW, cluster_keys, message};
use crate::cluster::outbound::{RemoteLimits, RemoteNodes};
use crate::cluster::signature::ClusterKeys;
use crate::system::node_address::AllowedNodes;

pub(super) const AGENT: Uaid = Uaid([0xa1; 16]);
pub(super) const OTHER_AGENT: Uaid = Uaid([0xb2; 16]);

pub(super) struct World {
    pub(super) nodes: RemoteNodes,
    pub(super) keys: Arc<ClusterKeys>,
    /// The nodes that call this one.
    pub(super) callers: Arc<Callers>,
    pub(super) clock: Clock,
    pub(super) log: Log,
}

/// Short enough for a test to wait.
pub(super) const SHORT: Duration = Duration::from_millis(50);

/// The backoff is longer than any test runs.
pub(super) fn limits() -> RemoteLimits {
    RemoteLimits {
        requests_max: 1000,
        connect_timeout: LONG,
        push_wait: LONG,
        hang_after: Span::from_secs(3600),
        notification_wait: LONG,
        breaker: BreakerLimits {
            backoff: Span::from_secs(3600),
            backoff_max: Span::from_secs(3600),
        },
        pending_notifications_max: 1000,
        connections_idle_max: 100,
        connection_idle: LONG,
        nodes_max: 10,
        evict_after: Span::from_secs(3600),
        introduce_every: Span::from_secs(3600),
        log_every: Span::from_secs(3600),
        clock_skew: Span::from_secs(60),
        threads: 4,
    }
}

/// The backoff is some milliseconds.
pub(super) fn soon() -> RemoteLimits {
    RemoteLimits { breaker: BreakerLimits { backoff: Span(5), backoff_max: Span(10) }, ..limits() }
}

impl World {
    pub(super) fn new(limits: RemoteLimits) -> Self {
        Self::allowing(AllowedNodes::loopback(), limits)
    }

    pub(super) fn allowing(allowed: AllowedNodes, limits: RemoteLimits) -> Self {
        let (keys, clock) = (cluster_keys(KEY), Clock::starting_at(NOW));
        let (logger, log) = Log::new();
        let (keys_of, callers) = (Arc::clone(&keys), Arc::<Callers>::default());
        let known = Arc::clone(&callers);
        let nodes = RemoteNodes::new(keys_of, allowed, limits, known, clock.clone(), logger);
        Self { nodes, keys, callers, clock, log }
    }

    /// A node with signed answers of this status.
    pub(super) async fn node(&self, status: u16) -> Node {
        self.node_that(self.answers(status)).await
    }

    pub(super) async fn node_that(&self, act: Act) -> Node {
        Node::start(&self.keys, &self.clock, act).await
    }

    /// A node with signed answers of this status, whose clock is this far ahead.
    pub(super) async fn node_ahead(&self, seconds: i64, status: u16) -> Node {
        let clock = Clock::starting_at(self.ahead(seconds));
        Node::start(&self.keys, &clock, self.answers(status)).await
    }

    /// A node that resets each connection, and the failure of the first push to it.
    pub(super) async fn broken_node(&self) -> Node {
        let node = self.node_that(Act::Reset(Vec::new())).await;
        assert_eq!(self.pushed(&node.id).await, NodeAnswer::Unreachable);
        node
    }

    /// A node that answers once a status is sent.
    pub(super) async fn holding_node(&self) -> (watch::Sender<Option<u16>>, Node) {
        let (tell, hold) = Act::hold();
        (tell, self.node_that(hold).await)
    }

    /// The name and address of a node that has ended.
    pub(super) async fn dead_node(&self) -> (NodeId, SocketAddr) {
        let node = self.node(200).await;
        (node.id.clone(), node.die().await)
    }

    /// A node with signed answers 200 at the address of one that has ended.
    pub(super) async fn node_at(&self, address: SocketAddr) -> Node {
        Node::start_at(address, &self.keys, &self.clock, self.answers(200)).await
    }

    /// A node whose clock is this far ahead, and that has accepted a push.
    pub(super) async fn called_node(&self, seconds: i64) -> Node {
        let node = self.node_ahead(seconds, 200).await;
        assert_eq!(self.pushed(&node.id).await, NodeAnswer::Accepted, "{seconds} s ahead");
        node
    }

    /// The time of a clock that is this far ahead now.
    pub(super) fn ahead(&self, seconds: i64) -> Time {
        self.clock.now() + ClockDifference(seconds * 1000)
    }

    pub(super) fn answers(&self, status: u16) -> Act {
        Act::sign(&self.keys, status)
    }

    pub(super) fn push(&self, node: &NodeId) -> oneshot::Receiver<NodeAnswer> {
        self.nodes.deliver(node, AGENT, message())
    }

    pub(super) async fn pushed(&self, node: &NodeId) -> NodeAnswer {
        let answer = timeout(LONG, self.push(node)).await;
        answer.expect("every push ends").unwrap()
    }

    /// Pushes until the node accepts one.
    pub(super) async fn accepted(&self, node: &NodeId) {
        let mut last = None;
        let accepted = async {
            while last != Some(NodeAnswer::Accepted) {
                last = Some(self.pushed(node).await);
            }
        };
        let is_accepted = timeout(LONG, accepted).await.is_ok();
        assert!(is_accepted, "the last answer was {last:?}");
    }

    /// The answer of a push that must be answered without a request.
    pub(super) fn refused(&self, node: &NodeId) -> NodeAnswer {
        self.push(node).try_recv().expect("the push is answered at once")
    }

    /// Whether the breaker of a node is open.
    pub(super) fn is_open(&self, node: &NodeId) -> bool {
        self.push(node).try_recv() == Ok(NodeAnswer::Unreachable)
    }

    /// Waits until no worker runs and no push is in progress.
    pub(super) async fn rests(&self) {
        let rests = async {
            while Arc::strong_count(&self.nodes.shared) > 1 {
                yield_now().await;
            }
        };
        timeout(LONG, rests).await.expect("every worker and push ends");
    }
}
