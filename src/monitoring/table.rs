//! The table of metrics: name, kind, labels with their values, and documentation, each written once.

use actors::counters::{MonthMove, StoreCall};
use actors::observe::{ACK_CODES, PUSH_ANSWERS};

use crate::push::app::OPERATOR_LOGINS;
use crate::push::judge::{CHECKS, MAINTENANCE, SEVERITIES};
use crate::push::push_counters::{OUTCOMES, STATUSES, VAPID};
use crate::system::telemetry::LOST;

/// What is known of a metric.
#[derive(Debug)]
pub struct Metric {
    /// In the name is the unit; that of a counter ends in `_total`.
    pub name: &'static str,
    pub kind: Kind,
    doc: &'static str,
    pub labels: &'static [Label],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

#[derive(Debug)]
pub struct Label {
    pub name: &'static str,
    pub values: Values,
}

/// The values that a label can have, so that the number of series is bounded.
#[derive(Debug)]
pub enum Values {
    These(&'static [&'static str]),
    /// The names of other nodes: at most `nodes_max`.
    Nodes,
    /// The version of the program.
    Version,
}

impl Metric {
    pub fn help(&self) -> &'static str {
        self.doc.trim()
    }
}

impl Values {
    pub fn contains(&self, value: &str) -> bool {
        match self {
            Self::These(values) => values.contains(&value),
            Self::Nodes | Self::Version => true,
        }
    }
}

/// The phases of a session, in the order of [`PhaseName::ALL`](state_machine::connection::PhaseName::ALL).
pub const PHASES: &[&str] = &[
    "awaiting_hello",
    "identified",
    "draining_old_month",
    "copying_chids",
    "writing_record",
    "draining_again",
    "awaiting_deletes",
    "moving_messages",
    "clearing_old_month",
    "ready",
    "closed",
];

/// Those of a move to this month.
pub const MOVING: &[&str] = PHASES.split_at(2).1.split_at(7).0;

/// The limits that refuse: settings, and `http_listen`, the connections of an address to that port.
pub const LIMITS: &[&str] = &[
    "subscription_pushes_per_minute_max",
    "vapid_key_pushes_per_minute_max",
    "address_pushes_per_minute_max",
    "address_handshakes_per_minute_max",
    "address_connects_per_minute_max",
    "address_connections_max",
    "http_listen",
    "address_new_agents_per_minute_max",
    "address_registers_per_minute_max",
    "agent_registers_per_minute_max",
    "agent_hellos_per_minute_max",
    "connects_per_second_max",
    "receipt_subscriptions_per_minute_max",
    "receipt_messages_max",
    "user_messages_max",
    "agent_pushes_awaiting_bridge_max",
    "disk_free_min",
];

const MOVES: &[&str] =
    &[MonthMove::Begun.name(), MonthMove::Resumed.name(), MonthMove::Done.name()];

const CALLS: &[&str] = &{
    let mut names = [""; StoreCall::ALL.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = StoreCall::ALL[at].1;
        at += 1;
    }
    names
};

/// The results of orders of a certificate.
pub const ORDERS: [&str; 2] = ["succeeded", "failed"];

const MAILBOXES: &[&str] = &["registry", "endpoint", "publisher", "broadcasts"];

/// The states of a breaker.
pub const STATES: &[&str] = &["closed", "open", "half_open"];

macro_rules! metrics {
    ($(
        $(#[doc = $doc:literal])+
        $metric:ident: $kind:ident, $name:literal $(, $label:ident in $values:expr)*;
    )+) => {
        $(
            $(#[doc = $doc])+
            pub static $metric: Metric = Metric {
                name: $name,
                kind: Kind::$kind,
                doc: concat!($($doc),+),
                labels: &[$( Label { name: stringify!($label), values: $values } ),*],
            };
        )+

        /// All metrics, in the order of the documentation.
        pub static ALL: &[&Metric] = &[$( &$metric ),+];
    };
}

use Values::{Nodes, These, Version};

metrics! {
    /// Always 1; the label has the version.
    BUILD_INFO: Gauge, "kalends_build_info", version in Version;
    /// Whether the server drains: 1 from the start of the shutdown.
    DRAINING: Gauge, "kalends_draining";

    /// Processor time of the process, in whole seconds. The metrics of the process are there on Linux.
    PROCESS_CPU: Counter, "process_cpu_seconds_total";
    /// Resident memory of the process.
    PROCESS_MEMORY: Gauge, "process_resident_memory_bytes";
    /// Start of the process, in seconds since 1970.
    PROCESS_START: Gauge, "process_start_time_seconds";
    /// Open files of the process, sockets among them.
    PROCESS_FILES: Gauge, "process_open_fds";

    /// Lines of the log that were lost: `queue_full` above `log_queue_max`, `write_failed` on a full disk or a closed
    /// pipe.
    LOG_LINES_LOST: Counter, "kalends_log_lines_lost_total", reason in These(&LOST);

    /// User agents by the phase of their session.
    CLIENTS: Gauge, "kalends_clients", phase in These(PHASES);
    /// User agents that pushes find on this node.
    CONNECTIONS: Gauge, "kalends_connections";
    /// Open connections of the public port.
    PORT_CONNECTIONS: Gauge, "kalends_port_connections";
    /// The number of connections at which the public port refuses further ones.
    PORT_CONNECTIONS_MAX: Gauge, "kalends_port_connections_max";
    /// How often a connection took the last place of the public port, or found none.
    PORT_FULL: Counter, "kalends_port_full_total";
    /// Idle HTTP connections that were closed because the public port was nearly full.
    PORT_IDLE_CLOSED: Counter, "kalends_port_idle_closed_total";
    /// HTTP/2 connections that were ended because their peers made more work than requests do.
    HTTP2_OVERSPENT: Counter, "kalends_http2_overspent_total";

    /// Open connections of the router port, on a connection node.
    ROUTER_PORT_CONNECTIONS: Gauge, "kalends_router_port_connections";
    /// The number of connections at which the router port accepts no further one.
    ROUTER_PORT_CONNECTIONS_MAX: Gauge, "kalends_router_port_connections_max";
    /// How often a connection took the last place of the router port.
    ROUTER_PORT_FULL: Counter, "kalends_router_port_full_total";

    /// The end of the certificate that the public port presents, in seconds since 1970. Not there without TLS.
    CERTIFICATE_EXPIRES: Gauge, "kalends_certificate_expires_timestamp_seconds";
    /// Orders of a certificate by ACME, by their result.
    CERTIFICATE_ORDERS: Counter, "kalends_certificate_orders_total", result in These(&ORDERS);

    /// Valid pushes by their outcome.
    PUSHES: Counter, "kalends_pushes_total", outcome in These(&OUTCOMES);
    /// Responses of the push endpoint by their status.
    PUSH_RESPONSES: Counter, "kalends_push_responses_total", status in These(&STATUSES);
    /// Requests of the push endpoint by the check of their VAPID credentials.
    VAPID_CHECKS: Counter, "kalends_vapid_checks_total", result in These(&VAPID);
    /// Pushes to one of `former_urls`, by the URL of the request, the signature or the Matrix pushkey.
    FORMER_URL_PUSHES: Counter, "kalends_former_url_pushes_total";
    /// Time from a checked request to the ack of the user agent, of pushes that were delivered directly.
    PUSH_DIRECT: Histogram, "kalends_push_direct_seconds";
    /// Pushes in flight that wait for the store.
    PUSHES_IN_FLIGHT: Gauge, "kalends_pushes_in_flight";
    /// Pushes in flight that wait for an ack.
    PUSHES_AWAITING_ACK: Gauge, "kalends_pushes_awaiting_ack";
    /// Answers of sessions to pushes. After `busy` and `unconfirmed` the message is stored.
    PUSH_ANSWERS_TOTAL: Counter, "kalends_push_answers_total", answer in These(&PUSH_ANSWERS);
    /// Acked messages by the code of the ack, and `nack` messages.
    ACKS: Counter, "kalends_acks_total", code in These(&ACK_CODES);

    /// Time from the id of a stored message to its deletion by a session, mostly after the ack.
    TIME_IN_STORAGE: Histogram, "kalends_time_in_storage_seconds";
    /// Messages that wait in the embedded store. They are counted once a minute, expired ones until they are deleted.
    WAITING_MESSAGES: Gauge, "kalends_waiting_messages";
    /// Bytes of the payloads of waiting messages, counted with them.
    WAITING_BYTES: Gauge, "kalends_waiting_bytes";
    /// Messages that were deleted because they had expired. DynamoDB deletes them by itself.
    MESSAGES_EXPIRED: Counter, "kalends_messages_expired_total";
    /// Messages that were deleted for another one, with `when_full` = `replace`.
    MESSAGES_GAVE_WAY: Counter, "kalends_messages_gave_way_total";
    /// Time of an operation on the store with its wait in the queue, for sessions and for pushes.
    STORE_OPERATION: Histogram, "kalends_store_operation_seconds",
        by in These(&["session", "push"]), operation in These(CALLS);
    /// Operations that wait for the store or are under way: writes of the embedded store, all of DynamoDB.
    STORE_QUEUE: Gauge, "kalends_store_queue";
    /// The number of operations at which the store is busy.
    STORE_QUEUE_MAX: Gauge, "kalends_store_queue_max";
    /// Reads of router records of the embedded store.
    RECORD_READS: Counter, "kalends_record_reads_total", source in These(&["memory", "file"]);
    /// Reads of the embedded store that SQLite could not do. `/health` is 503 for a minute after one.
    FAILED_READS: Counter, "kalends_failed_reads_total";
    /// Free space on the disk of the embedded store.
    DISK_FREE: Gauge, "kalends_disk_free_bytes";
    /// The free space below which messages are refused.
    DISK_FREE_MIN: Gauge, "kalends_disk_free_min_bytes";

    /// Steps of user agents from one month to another.
    MONTH_MOVES: Counter, "kalends_month_moves_total", step in These(MOVES);

    /// Requests that a limit refused, by the setting; `user_messages_max` has all of "Waiting messages".
    LIMIT_REFUSALS: Counter, "kalends_limit_refusals_total", limit in These(LIMITS);

    /// When maintenance last succeeded in this process, in seconds since 1970, by its task. Not there before.
    MAINTENANCE_LAST: Gauge, "kalends_maintenance_last_timestamp_seconds", task in These(&MAINTENANCE);
    /// 1 while a check of the server finds nothing, otherwise 0. `kalends status` says what a check means. The store is
    /// checked once a minute.
    HEALTH_CHECK: Gauge, "kalends_health_check", check in These(&CHECKS), severity in These(&SEVERITIES);
    /// Failures of maintenance by its task. It is repeated in an hour.
    MAINTENANCE_FAILURES: Counter, "kalends_maintenance_failures_total", task in These(&MAINTENANCE);

    /// Attempts to open the operator's page, and requests of it without a valid session, by their result.
    OPERATOR_LOGINS_TOTAL: Counter, "kalends_operator_logins_total", result in These(&OPERATOR_LOGINS);

    /// The breaker of each other node that this one has called: 1 for the state that it is in.
    NODE_BREAKER: Gauge, "kalends_node_breaker", node in Nodes, state in These(STATES);
    /// Pushes in flight to another node.
    NODE_PUSHES: Gauge, "kalends_node_pushes_in_flight", node in Nodes;
    /// Notifications that wait to be sent to another node.
    NODE_NOTIFICATIONS: Gauge, "kalends_node_notifications_pending", node in Nodes;
    /// How far the clock of a node is ahead or behind, in whole seconds: of each other node that has answered this one
    /// or called it, and of `this server`. It is compared with the clocks that more than half of these nodes agree on, and is 0
    /// within `cluster_clock_skew_s`. Without such a majority it is compared with the clock of this server, and that of
    /// this server with the one that differs most.
    NODE_CLOCK: Gauge, "kalends_node_clock_difference_seconds",
        node in Nodes, direction in These(&["ahead", "behind"]);

    /// Feeds that are followed or have something to publish.
    FEEDS_OPEN: Gauge, "kalends_feeds_open";
    /// Open feeds whose last publication failed.
    FEEDS_FAILING: Gauge, "kalends_feeds_failing";
    /// Followers of feeds, without those of the node itself.
    FEED_FOLLOWERS: Gauge, "kalends_feed_followers";
    /// Followers of feeds that have not received everything that is published.
    FEED_FOLLOWERS_BEHIND: Gauge, "kalends_feed_followers_behind";
    /// Deleted keys of feeds whose tombstones this node has forgotten.
    FEED_TOMBSTONES_FORGOTTEN: Counter, "kalends_feed_tombstones_forgotten_total";
    /// Published changes of broadcasts that this node does not have yet.
    BROADCASTS_LAG: Gauge, "kalends_broadcasts_lag";

    /// Messages in the mailboxes of actors. That of all endpoint actors is one.
    MAILBOX: Gauge, "kalends_mailbox_messages", mailbox in These(MAILBOXES);
    /// The bound of a mailbox.
    MAILBOX_MAX: Gauge, "kalends_mailbox_messages_max", mailbox in These(MAILBOXES);
}

#[cfg(test)]
mod tests {
    use state_machine::connection::PhaseName;

    use super::*;
    use crate::settings::setting::Setting;

    #[test]
    fn the_values_of_labels_are_those_of_the_code() {
        let same = |phase: PhaseName| phase.to_string().to_lowercase();
        let words = PHASES.iter().map(|word| word.replace('_', "")).collect::<Vec<_>>();
        assert_eq!(words, PhaseName::ALL.map(same));
        assert_eq!(MOVES, MonthMove::ALL.map(MonthMove::name));
        let is_setting = |limit: &&&str| {
            **limit == "agent_pushes_awaiting_bridge_max" || Setting::find(limit).is_some()
        };
        assert_eq!(LIMITS.iter().filter(is_setting).count(), LIMITS.len());
    }

    #[test]
    fn names_follow_the_conventions_of_prometheus() {
        for metric in ALL {
            let is_counter = metric.kind == Kind::Counter;
            let of_process = metric.name.starts_with("process_");
            assert!(of_process || metric.name.starts_with("kalends_"), "{}", metric.name);
            assert_eq!(metric.name.ends_with("_total"), is_counter, "{}", metric.name);
            let is_histogram = metric.kind == Kind::Histogram;
            let has_unit = metric.name.ends_with("_seconds");
            assert!(has_unit || !is_histogram, "{}", metric.name);
        }
        let mut names: Vec<_> = ALL.iter().map(|metric| metric.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
