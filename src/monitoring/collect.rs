//! Reads all metrics of a node once.

use std::borrow::Cow;
use std::sync::atomic::Ordering;
use std::time::Duration;

use actors::counters::{HistogramCounts, MonthMove};
use actors::mailbox::MailboxState;
use actors::observe::{
    ACK_CODES, BreakerState, BroadcastState, EndpointState, PUSH_ANSWERS, PeerStatus,
    PublisherState, RegistryState,
};
use actors::{ClientShared, NodeDirectory, Observe};
use state_machine::connection::PhaseName;
use state_machine::feed::FeedName;
use state_machine::store::PageLimit;
use storage::{DiskSpace, EngineState};
use tokio::time::timeout;

use super::process;
use super::table::{self, Metric};
use crate::limits::PortName;
use crate::push::app::{AppState, EndpointRole, OPERATOR_LOGINS, SharedState};
use crate::push::judge::{Check, MAINTENANCE, MaintenanceCounts};
use crate::push::push_counters::{OUTCOMES, STATUSES, VAPID};
use crate::system::telemetry::LOST;

/// Maximum time for an actor or the store to answer. The metrics of one that does not are missing.
const ANSWER_WAIT: Duration = Duration::from_secs(2);

/// A value of a metric.
#[derive(Debug)]
pub struct Sample {
    pub metric: &'static Metric,
    /// The values of its labels, in the order of the table.
    pub labels: Vec<Cow<'static, str>>,
    pub value: Value,
}

#[derive(Debug)]
pub enum Value {
    Number(u64),
    Histogram(HistogramCounts),
}

/// The samples so far.
#[derive(Default)]
struct Samples(Vec<Sample>);

impl Sample {
    /// The values of labels are in the lists of the table.
    pub fn new<const N: usize>(
        metric: &'static Metric,
        labels: [Cow<'static, str>; N],
        value: Value,
    ) -> Self {
        debug_assert_eq!(labels.len(), metric.labels.len(), "{}", metric.name);
        let mut pairs = metric.labels.iter().zip(&labels);
        debug_assert!(
            pairs.all(|(label, value)| label.values.contains(value)),
            "{} has labels that are not in its table: {labels:?}",
            metric.name
        );
        Self { metric, labels: labels.into(), value }
    }

    pub fn is_of(&self, metric: &Metric) -> bool {
        std::ptr::eq(self.metric, metric)
    }
}

impl Samples {
    fn add(&mut self, metric: &'static Metric, value: impl TryInto<u64>) {
        self.labelled(metric, [], value);
    }

    fn labelled<const N: usize>(
        &mut self,
        metric: &'static Metric,
        labels: [Cow<'static, str>; N],
        value: impl TryInto<u64>,
    ) {
        let value = Value::Number(value.try_into().unwrap_or(u64::MAX));
        self.0.push(Sample::new(metric, labels, value));
    }

    fn each<const N: usize>(
        &mut self,
        metric: &'static Metric,
        names: &[&'static str; N],
        counts: [u64; N],
    ) {
        for (name, count) in names.iter().zip(counts) {
            self.labelled(metric, [(*name).into()], count);
        }
    }

    fn times<const N: usize>(
        &mut self,
        metric: &'static Metric,
        labels: [Cow<'static, str>; N],
        times: HistogramCounts,
    ) {
        self.0.push(Sample::new(metric, labels, Value::Histogram(times)));
    }

    fn refused(&mut self, limit: &'static str, times: u64) {
        self.labelled(&table::LIMIT_REFUSALS, [limit.into()], times);
    }

    fn mailbox(&mut self, name: &'static str, MailboxState { length, max }: MailboxState) {
        self.labelled(&table::MAILBOX, [name.into()], length);
        self.labelled(&table::MAILBOX_MAX, [name.into()], max);
    }
}

/// Reads the metrics of this node's role.
pub async fn collect(node: &AppState) -> Vec<Sample> {
    let mut samples = Samples::default();
    let common = &node.common;
    let version = env!("CARGO_PKG_VERSION");
    samples.labelled(&table::BUILD_INFO, [version.into()], 1_u64);
    samples.add(&table::DRAINING, u64::from(common.is_draining()));
    of_process(&mut samples);
    samples.each(&table::LOG_LINES_LOST, &LOST, common.log_state.lost());
    // A server of all roles has no router port.
    of_ports(&mut samples, common, node.endpoints.is_none());
    of_certificate(&mut samples, common);
    of_maintenance(&mut samples, &common.judge.maintenance);
    let judgement = node.judge_in_memory().await;
    for check in Check::ALL {
        let is_well = !judgement.finds(check);
        let labels = [check.name().into(), check.severity().name().into()];
        samples.labelled(&table::HEALTH_CHECK, labels, u64::from(is_well));
    }
    of_store(&mut samples, common);
    if let Ok(Ok(state)) = timeout(ANSWER_WAIT, common.feeds.observe()).await {
        of_feeds(&mut samples, &state);
    }
    if let Some(connections) = &node.connections {
        of_clients(&mut samples, &connections.clients).await;
        of_broadcasts(&mut samples, common, &connections.clients).await;
    }
    if let Some(endpoints) = &node.endpoints {
        of_pushes(&mut samples, endpoints);
    }
    if let Some(nodes) = node.nodes() {
        of_nodes(&mut samples, nodes);
    }
    samples.0
}

fn of_process(samples: &mut Samples) {
    let Some(process) = process::read() else { return };
    samples.add(&table::PROCESS_CPU, process.cpu_s);
    samples.add(&table::PROCESS_MEMORY, process.resident_bytes);
    samples.add(&table::PROCESS_START, process.started_at_s);
    samples.add(&table::PROCESS_FILES, process.open_files);
}

fn of_ports(samples: &mut Samples, common: &SharedState, is_connection_node: bool) {
    let port = common.limits.port_state(PortName::Public);
    samples.add(&table::PORT_CONNECTIONS, port.connections);
    samples.add(&table::PORT_CONNECTIONS_MAX, port.connections_max);
    samples.add(&table::PORT_FULL, port.times_full);
    samples.add(&table::PORT_IDLE_CLOSED, common.limits.idle_closed());
    samples.add(&table::HTTP2_OVERSPENT, common.limits.overspent());
    if is_connection_node {
        let router = common.limits.port_state(PortName::Router);
        samples.add(&table::ROUTER_PORT_CONNECTIONS, router.connections);
        samples.add(&table::ROUTER_PORT_CONNECTIONS_MAX, router.connections_max);
        samples.add(&table::ROUTER_PORT_FULL, router.times_full);
    }
    let logins = common.operator_logins.counts();
    samples.each(&table::OPERATOR_LOGINS_TOTAL, &OPERATOR_LOGINS, logins);
    for (limit, times) in common.limits.refused() {
        samples.refused(limit, times);
    }
}

fn of_maintenance(samples: &mut Samples, counts: &MaintenanceCounts) {
    for (task, time_s) in counts.successes() {
        samples.labelled(&table::MAINTENANCE_LAST, [task.into()], time_s);
    }
    samples.each(&table::MAINTENANCE_FAILURES, &MAINTENANCE, counts.failures());
}

fn of_certificate(samples: &mut Samples, SharedState { certificates, .. }: &SharedState) {
    if let Some(certificate) = certificates.current() {
        samples.add(&table::CERTIFICATE_EXPIRES, certificate.valid.expires.as_secs());
    }
    let orders = [&certificates.orders_succeeded, &certificates.orders_failed];
    let orders = orders.map(|count| count.load(Ordering::Relaxed));
    samples.each(&table::CERTIFICATE_ORDERS, &table::ORDERS, orders);
}

fn of_store(samples: &mut Samples, common: &SharedState) {
    let EngineState { messages_gave_way, queue, record_reads, failed_reads, disk, .. } =
        common.store.state();
    samples.add(&table::MESSAGES_EXPIRED, common.messages_expired.load(Ordering::Relaxed));
    let waiting = common.waiting.lock().clone();
    if let Some(waiting) = waiting {
        samples.add(&table::WAITING_MESSAGES, waiting.messages);
        samples.add(&table::WAITING_BYTES, waiting.bytes);
    }
    samples.add(&table::MESSAGES_GAVE_WAY, messages_gave_way);
    if let Some(queue) = queue {
        samples.add(&table::STORE_QUEUE, queue.length);
        samples.add(&table::STORE_QUEUE_MAX, queue.max);
    }
    if let Some(reads) = record_reads {
        samples.labelled(&table::RECORD_READS, ["memory".into()], reads.from_memory);
        samples.labelled(&table::RECORD_READS, ["file".into()], reads.from_file);
    }
    if let Some(failed) = failed_reads {
        samples.add(&table::FAILED_READS, failed);
    }
    if let Some(disk) = disk {
        of_disk(samples, &disk);
    }
}

fn of_disk(samples: &mut Samples, disk: &DiskSpace) {
    samples.add(&table::DISK_FREE, disk.free_bytes);
    samples.add(&table::DISK_FREE_MIN, disk.free_bytes_min);
    samples.refused("disk_free_min", disk.messages_refused + disk.subscriptions_refused);
}

fn of_feeds(samples: &mut Samples, PublisherState { mailbox, feeds, failing }: &PublisherState) {
    samples.mailbox("publisher", *mailbox);
    samples.add(&table::FEEDS_OPEN, feeds.open);
    samples.add(&table::FEEDS_FAILING, *failing);
    samples.add(&table::FEED_FOLLOWERS, feeds.followers);
    samples.add(&table::FEED_FOLLOWERS_BEHIND, feeds.followers_behind);
    samples.add(&table::FEED_TOMBSTONES_FORGOTTEN, feeds.forgotten);
}

async fn of_clients(samples: &mut Samples, clients: &ClientShared) {
    let counters = &clients.counters;
    let phases = counters.counts().phases;
    for (phase, word) in PhaseName::ALL.iter().zip(table::PHASES) {
        let count = phases.get(phase).copied().unwrap_or(0);
        samples.labelled(&table::CLIENTS, [(*word).into()], count);
    }
    samples.each(&table::ACKS, &ACK_CODES, counters.acks.counts());
    samples.each(&table::PUSH_ANSWERS_TOTAL, &PUSH_ANSWERS, counters.answers.counts());
    let steps = MonthMove::ALL.map(MonthMove::name);
    samples.each(&table::MONTH_MOVES, &steps, counters.moves.counts());
    samples.times(&table::TIME_IN_STORAGE, [], counters.time_in_storage.counts());
    for (call, times) in counters.store_times.counts() {
        samples.times(&table::STORE_OPERATION, ["session".into(), call.into()], times);
    }
    let registry = clients.registry.send(Observe::<RegistryState>::new());
    if let Ok(Ok(state)) = timeout(ANSWER_WAIT, registry).await {
        samples.mailbox("registry", state.mailbox);
        samples.add(&table::CONNECTIONS, state.connections);
    }
}

/// The lag is found by a read of what the broadcasts' feed has behind this node's cursor.
async fn of_broadcasts(samples: &mut Samples, common: &SharedState, clients: &ClientShared) {
    let Some(view) = &clients.broadcasts else { return };
    let state = view.observe.send(Observe::<BroadcastState>::new());
    let Ok(Ok(state)) = timeout(ANSWER_WAIT, state).await else { return };
    samples.mailbox("broadcasts", state.mailbox);
    let limit = PageLimit { rows: 1, bytes: 1 };
    let read = common.feeds.store().fetch_feed(FeedName::broadcasts(), state.cursor, limit);
    if let Ok(Ok(page)) = timeout(ANSWER_WAIT, read).await {
        let lag = page.map_or(0, |page| page.head.0.saturating_sub(state.cursor.0));
        samples.add(&table::BROADCASTS_LAG, lag);
    }
}

fn of_pushes(samples: &mut Samples, endpoints: &EndpointRole) {
    let (counters, shared) = (&endpoints.counters, &endpoints.shared);
    samples.each(&table::PUSHES, &OUTCOMES, counters.outcomes.counts());
    samples.each(&table::PUSH_RESPONSES, &STATUSES, counters.responses.counts());
    samples.each(&table::VAPID_CHECKS, &VAPID, counters.vapid.counts());
    samples.add(&table::FORMER_URL_PUSHES, endpoints.origins.former_pushes());
    samples.times(&table::PUSH_DIRECT, [], counters.direct.counts());
    for (call, times) in shared.store_times.counts() {
        samples.times(&table::STORE_OPERATION, ["push".into(), call.into()], times);
    }
    let EndpointState { mailbox, in_flight, ack_waiters, refused_full, .. } = shared.state();
    samples.mailbox("endpoint", mailbox);
    samples.add(&table::PUSHES_IN_FLIGHT, in_flight);
    samples.add(&table::PUSHES_AWAITING_ACK, ack_waiters);
    samples.refused("user_messages_max", refused_full);
    samples.refused("receipt_messages_max", endpoints.receipts_full.refused());
    samples.refused("agent_pushes_awaiting_bridge_max", shared.bridge_refused());
}

fn of_nodes(samples: &mut Samples, nodes: &dyn NodeDirectory) {
    nodes.peers().iter().for_each(|peer| of_node(samples, peer));
    for clock in nodes.clocks().clocks {
        of_clock(samples, clock.name(), clock.ahead.seconds());
    }
}

fn of_clock(samples: &mut Samples, node: &str, seconds_ahead: i64) {
    let node = || Cow::from(node.to_owned());
    samples.labelled(&table::NODE_CLOCK, [node(), "ahead".into()], seconds_ahead.max(0));
    samples.labelled(&table::NODE_CLOCK, [node(), "behind".into()], -seconds_ahead.min(0));
}

fn of_node(samples: &mut Samples, peer: &PeerStatus) {
    let node = || Cow::from(peer.node.as_str().to_owned());
    let state = match peer.breaker {
        BreakerState::Closed => "closed",
        BreakerState::Open { .. } => "open",
        BreakerState::HalfOpen => "half_open",
    };
    for known in table::STATES {
        let is_in = u64::from(*known == state);
        samples.labelled(&table::NODE_BREAKER, [node(), (*known).into()], is_in);
    }
    samples.labelled(&table::NODE_PUSHES, [node()], peer.pushes_in_flight);
    samples.labelled(&table::NODE_NOTIFICATIONS, [node()], peer.notifications_pending);
}

#[cfg(test)]
mod tests {
    use state_machine::{NodeId, Span};

    use super::*;

    /// The values of a metric in the order of the samples.
    fn values(samples: &Samples, metric: &'static Metric) -> Vec<u64> {
        let of_metric = samples.0.iter().filter(|sample| sample.is_of(metric));
        let number = |sample: &Sample| match sample.value {
            Value::Number(number) => number,
            Value::Histogram(_) => panic!("it is no number"),
        };
        of_metric.map(number).collect()
    }

    #[test]
    fn a_clock_is_ahead_or_behind_and_both_are_shown_without_a_sign() {
        for (seconds, expected) in [(-3, [0, 3]), (0, [0, 0]), (3, [3, 0])] {
            let mut samples = Samples::default();
            of_clock(&mut samples, "a", seconds);
            assert_eq!(values(&samples, &table::NODE_CLOCK), expected, "{seconds}");
        }
    }

    #[test]
    fn a_full_disk_has_refused_messages_and_subscriptions() {
        let disk = DiskSpace {
            free_bytes: 1,
            free_bytes_min: 2,
            messages_refused: 40,
            subscriptions_refused: 300,
        };
        for (metric, expected) in
            [(&table::DISK_FREE, 1), (&table::DISK_FREE_MIN, 2), (&table::LIMIT_REFUSALS, 340)]
        {
            let mut samples = Samples::default();
            of_disk(&mut samples, &disk);
            assert_eq!(values(&samples, metric), [expected]);
        }
    }

    #[test]
    fn a_breaker_is_in_one_of_its_states() {
        for (breaker, expected) in [
            (BreakerState::Closed, "closed"),
            (BreakerState::Open { probe_in: Span::ZERO }, "open"),
            (BreakerState::HalfOpen, "half_open"),
        ] {
            let peer = PeerStatus {
                node: NodeId::new("a"),
                breaker,
                pushes_in_flight: 2,
                notifications_pending: 3,
            };
            let mut samples = Samples::default();
            of_node(&mut samples, &peer);
            let is_in = |sample: &&Sample| matches!(sample.value, Value::Number(1));
            let shown: Vec<_> = samples.0.iter().filter(is_in).collect();
            assert_eq!(shown.len(), 1);
            assert_eq!(shown[0].labels, ["a", expected]);
        }
    }
}
