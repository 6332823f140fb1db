//! Limits of the requests to other nodes.

use std::time::Duration;

use state_machine::Span;
use state_machine::breaker::BreakerLimits;

use crate::settings::Settings;

/// The limits of a [`RemoteNodes`](super::RemoteNodes).
#[derive(Debug, Clone, Copy)]
pub struct RemoteLimits {
    /// Pushes in progress to one node. Above it a push is
    /// [`Busy`](state_machine::delivery::NodeAnswer::Busy).
    pub requests_max: usize,
    pub connect_timeout: Duration,
    /// Timeout of a push, connecting included.
    pub push_wait: Duration,
    /// An endpoint that cancels a push after this time has waited longer than a healthy node takes,
    /// so the node counts as failed. An endpoint that cancels earlier has other reasons.
    pub hang_after: Span,
    /// Timeout of a notification, which no user agent is involved in.
    pub notification_wait: Duration,
    pub breaker: BreakerLimits,
    /// Notifications that wait for one node.
    pub pending_notifications_max: usize,
    /// Idle connections to one node, per thread.
    pub connections_idle_max: usize,
    /// Time after which an idle connection is closed.
    pub connection_idle: Duration,
    /// Nodes in the table.
    pub nodes_max: usize,
    /// Time after which an unused node is evicted; if it is down, also since then. A node that is down for longer has
    /// lost its connections, and its agents check storage when they reconnect.
    pub evict_after: Span,
    /// Time between two introductions to one node.
    pub introduce_every: Span,
    /// Minimum time between two log lines of the same kind on one node.
    pub log_every: Span,
    /// Clocks that differ by at most this agree.
    pub clock_skew: Span,
    /// Threads that make requests, each with its own connections.
    pub threads: usize,
}

impl From<&Settings> for RemoteLimits {
    fn from(settings: &Settings) -> Self {
        // The worker threads, and the thread that sends notifications.
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
            evict_after: Span::from_secs(5 * 60),
            introduce_every: Span::from_secs(60),
            log_every: Span::from_secs(60),
            clock_skew: Span::from_secs(settings.cluster_clock_skew_s),
            threads,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_calls_have_all_parts_of_their_settings() {
        let settings = Settings {
            workers: 3,
            ack_wait_ms: 1000,
            answer_grace_ms: 200,
            node_answer_grace_ms: 40,
            node_connect_timeout_ms: 500,
            node_connections_idle_max: 10,
            ..Settings::default()
        };
        let limits = RemoteLimits::from(&settings);
        assert_eq!(limits.push_wait, Duration::from_millis(1240));
        assert_eq!(limits.hang_after, Span(1220));
        assert_eq!(limits.notification_wait, Duration::from_millis(540));
        // The thread that sends notifications has connections too.
        assert_eq!((limits.threads, limits.connections_idle_max), (4, 3));
    }
}
