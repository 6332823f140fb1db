//! What bounds the way to other nodes.

use std::time::Duration;

use state_machine::Span;
use state_machine::breaker::BreakerLimits;

use crate::settings::Settings;

/// The limits of a [`RemoteNodes`](super::RemoteNodes).
#[derive(Debug, Clone, Copy)]
pub struct RemoteLimits {
    /// Pushes that may be under way to one node; one more is [`Busy`](state_machine::delivery::NodeAnswer::Busy).
    pub requests_max: usize,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long a push waits for the node's answer, connecting included.
    pub push_wait: Duration,
    /// An endpoint that gives up after that long, before `push_wait` is over, has waited longer than a node that works
    /// takes: the node failed. One that gives up earlier has its own reasons.
    pub hang_after: Span,
    /// How long anything else waits for the node's answer. No user agent has a part in that.
    pub notification_wait: Duration,
    /// How long a node that failed is left alone.
    pub breaker: BreakerLimits,
    /// User agents of one node that may wait to be told of something.
    pub pending_notifications_max: usize,
    /// Connections to one node that are kept while nothing is sent on them, in each thread.
    pub connections_idle_max: usize,
    /// How long they are kept.
    pub connection_idle: Duration,
    /// Nodes that are remembered.
    pub nodes_max: usize,
    /// How long a node is remembered that nobody asks for.
    pub forget_after: Span,
    /// How often the log is told the same of one node.
    pub tell_every: Span,
    /// Threads that requests are made in; each has its own connections.
    pub threads: usize,
}

/// How long a node is remembered that nobody asks for. A node that comes back later than that has lost its
/// connections, and its agents have looked into storage when they came back.
const FORGET_AFTER: Span = Span::from_secs(5 * 60);

/// How often the log is told the same of one node.
const TELL_EVERY: Span = Span::from_secs(60);

impl From<&Settings> for RemoteLimits {
    fn from(settings: &Settings) -> Self {
        // The workers, and the thread that tells nodes of what was stored.
        let threads = settings.worker_threads() + 1;
        let answer_wait_ms = settings.ack_wait_ms + settings.answer_grace_ms;
        let grace_ms = settings.node_answer_grace_ms;
        Self {
            requests_max: settings.node_requests_max,
            connect_timeout: Duration::from_millis(settings.node_connect_timeout_ms),
            push_wait: Duration::from_millis(answer_wait_ms + grace_ms),
            hang_after: Span(answer_wait_ms + grace_ms / 2),
            notification_wait: Duration::from_millis(settings.node_connect_timeout_ms + grace_ms),
            breaker: BreakerLimits {
                backoff: Span(settings.peer_backoff_ms),
                backoff_max: Span(settings.peer_backoff_max_ms),
            },
            pending_notifications_max: settings.peer_pending_notifications_max,
            connections_idle_max: settings.node_connections_idle_max.div_ceil(threads),
            connection_idle: Duration::from_secs(settings.node_connection_idle_s),
            nodes_max: settings.nodes_max,
            forget_after: FORGET_AFTER,
            tell_every: TELL_EVERY,
            threads,
        }
    }
}
