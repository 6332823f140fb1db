//! The facts of a node that are judged.

use std::time::{Duration, Instant};

use actors::broadcasts::BroadcastView;
use actors::observe::{BreakerState, PeerStatus};
use actors::registry::CountConnections;
use state_machine::{ClockComparison, Month, Span, Uaid};
use storage::DiskSpace;
use tokio::time::timeout;

use super::app::{AppState, SharedState, WebSocketRole};
use super::judge::{Check, Findings, Judgement, clocks, disk};
use crate::limits::{PortName, PortState};
use crate::system::printable::count;
use crate::system::tls::certificate::Certificate;

/// Maximum time for the store or the registry to answer a check.
const CHECK_WAIT: Duration = Duration::from_secs(2);

/// A disk with less free space than this many times `disk_free_min` is low.
const DISK_LOW: u64 = 4;

/// A port is nearly full if less than this part of its connections is left.
const NEARLY_FULL_PART: usize = 10;

/// Nodes that a sentence names.
const NAMED_MAX: usize = 5;

/// Time for which a refused call of a node is found. Nodes that are up call more often.
const REFUSED_CALL_KEPT: Span = Span::from_secs(5 * 60);

impl AppState {
    /// Takes at most twice [`CHECK_WAIT`], and writes a row to see that the store keeps it.
    pub async fn judge(&self) -> Judgement {
        let common = &*self.common;
        let answer = timeout(CHECK_WAIT, common.store.check()).await;
        let answer = answer.map(|answer| answer.err().map(|error| error.to_string()));
        let late = |_| Some(format!("no answer within {} s", CHECK_WAIT.as_secs()));
        *common.judge.store_failure.lock() = answer.unwrap_or_else(late);
        self.judge_in_memory().await
    }

    /// By what is in memory: of the store it is the last check.
    pub async fn judge_in_memory(&self) -> Judgement {
        let common = &*self.common;
        let mut findings = Findings::new(&common.judge, common.clock.now());
        if let Some(why) = common.judge.store_reason() {
            let found = format!("{} does not answer", common.judge.database);
            findings.add_with_reason(Check::Store, found, why);
        }
        of_process(common, &mut findings);
        let mut connections = None;
        if let Some(role) = &self.connections {
            connections = of_connections(role, &mut findings).await;
        }
        if let Some(nodes) = self.nodes() {
            of_peers(&nodes.peers(), &mut findings);
            of_clocks(&nodes.clocks(), &mut findings);
        }
        Judgement { findings: findings.end(), connections }
    }
}

fn of_process(common: &SharedState, findings: &mut Findings) {
    let SharedState { judge, feeds, accept_failures, log_state, .. } = common;
    let now = findings.now;
    findings.add_if(!log_state.works(Instant::now()), Check::Log, "the log cannot be written");
    findings.add_if(!feeds.is_running(), Check::Feeds, "the feeds have stopped");
    let is_refused = accept_failures.are_recent();
    findings.add_if(is_refused, Check::Accepts, "connections cannot be accepted");
    // A server that drains has removed it.
    let socket = judge.socket.get().filter(|_| !common.is_draining());
    if let Some((place, lost)) = socket.and_then(|place| Some((place, place.lost()?))) {
        findings.add(Check::Socket, format!("the socket {} was {lost}", place.path().display()));
    }
    if let Some(disk) = common.store.state().disk {
        of_disk(disk, &judge.data_dir, findings);
    }
    let certificates = &common.certificates;
    match (certificates.current(), &*certificates.awaited.lock()) {
        (Some(current), _) => of_certificate(&current, &judge.certificate_of, findings),
        (None, Some(why)) => {
            let found = format!("there is no certificate yet ({})", judge.certificate_of);
            findings.add_with_reason(Check::Certificate, found, why.clone());
        }
        (None, None) => {}
    }
    of_port(common.limits.port_state(PortName::Public), findings);
    let risks = judge.risks.lock().join("; ");
    if !risks.is_empty() {
        findings.add(Check::Durability, format!("{}: {risks}", judge.database));
    }
    let missing: Vec<_> = judge.missing_months.lock().iter().map(Month::to_string).collect();
    if let [.., _] = *missing {
        findings.add(Check::Months, format!("there is no message table of {}", missing.join(", ")));
    }
    if let Some(why) = &*judge.source_failure.lock() {
        findings.add(
            Check::BroadcastSource,
            format!("broadcast_source_url gives no broadcasts: {why}"),
        );
    }
    let (failing, reasons) = judge.maintenance.failing();
    if !failing.is_empty() {
        let found = format!("maintenance failed: {}", failing.join(" and "));
        findings.add_with_reason(Check::Maintenance, found, reasons.join("; "));
    }
    if let Some(address) = judge.metrics_port_taken.get() {
        let found = format!("the server cannot listen on metrics_listen = {address}");
        findings.add(Check::MetricsPort, found);
    }
    if let Some(age) = judge.without_backup(now) {
        findings.add(Check::Backup, format!("there was no backup for {}", count(days(age), "day")));
    }
}

fn of_port(
    PortState { connections, connections_max: max, .. }: PortState,
    findings: &mut Findings,
) {
    if connections > max - max / NEARLY_FULL_PART {
        findings.add(
            Check::Connections,
            format!("{connections} of connections_max = {max} connections are open"),
        );
    }
}

fn of_disk(disk: DiskSpace, data_dir: &str, findings: &mut Findings) {
    let DiskSpace { free_bytes, free_bytes_min, .. } = disk;
    let found = format!("the disk of {data_dir} has {}", disk::low(free_bytes, free_bytes_min));
    if free_bytes < free_bytes_min {
        findings.add(Check::Space, found);
    } else if free_bytes < free_bytes_min.saturating_mul(DISK_LOW) {
        findings.add(Check::Disk, found);
    }
}

fn of_certificate(certificate: &Certificate, of: &str, findings: &mut Findings) {
    let (now, valid, day) = (findings.now, certificate.valid, certificate.last_day());
    if now >= valid.expires {
        findings.add(Check::Certificate, format!("the certificate ended on {day} ({of})"));
    } else if let Some(left) = valid.ends_soon(now) {
        let hours = left.0 / (60 * 60 * 1000);
        let left = match hours {
            ..48 => count(hours, "hour"),
            _ => count(days(left), "day"),
        };
        let found = format!("the certificate ends in {left}, on {day} ({of})");
        findings.add(Check::CertificateEnds, found);
    }
}

async fn of_connections(
    WebSocketRole { clients, .. }: &WebSocketRole,
    findings: &mut Findings<'_>,
) -> Option<usize> {
    let count = timeout(CHECK_WAIT, clients.registry.send(CountConnections)).await;
    let count = count.ok().and_then(Result::ok);
    findings.add_if(count.is_none(), Check::Registry, "the registry of connections has stopped");
    let is_running = clients.broadcasts.as_ref().is_none_or(BroadcastView::is_running);
    findings.add_if(!is_running, Check::Broadcasts, "the broadcasts have stopped");
    of_rivals(&clients.counters.rivals.agents(), findings);
    count
}

fn of_rivals(agents: &[Uaid], findings: &mut Findings) {
    let named: Vec<_> = agents.iter().take(NAMED_MAX).map(|uaid| begin_of(*uaid)).collect();
    let named = named.join(", ");
    match agents.len() {
        0 => {}
        1 => findings
            .add(Check::Rivals, format!("two programs use one uaid, which begins with {named}")),
        many => findings.add(
            Check::Rivals,
            format!("{many} uaids are each used by two programs; they begin with {named}"),
        ),
    }
}

fn of_peers(peers: &[PeerStatus], findings: &mut Findings) {
    // One that is tried again has not answered yet.
    let is_silent = |peer: &&PeerStatus| peer.breaker != BreakerState::Closed;
    let mut silent: Vec<_> =
        peers.iter().filter(is_silent).map(|peer| peer.node.as_str()).collect();
    silent.sort_unstable();
    if let [.., _] = *silent {
        let named = silent[..silent.len().min(NAMED_MAX)].join(", ");
        let does = if silent.len() == 1 { "does" } else { "do" };
        let nodes = count(silent.len() as u64, "node");
        findings.add(Check::Nodes, format!("{nodes} {does} not answer: {named}"));
    }
}

/// Clocks that can be compared, and that of a caller whose calls are refused.
fn of_clocks(clocks: &ClockComparison, findings: &mut Findings) {
    let mut sentences = clocks::sentences(clocks);
    let refused = *findings.judge.refused_call.lock();
    if let Some(call) = refused.filter(|call| findings.now.since(call.at) < REFUSED_CALL_KEPT) {
        let (from, distance) = (call.from, clocks::distance(call.ahead));
        sentences.push(format!(
            "The calls of a node at {from} are refused, as its clock is {distance} this one: set the wrong one."
        ));
    }
    if !sentences.is_empty() {
        findings.add(Check::Clock, clause(&sentences.join(" ")));
    }
}

/// The first eight characters, which tell the agents of a server apart. The whole one lets anybody connect as the agent.
pub fn begin_of(uaid: Uaid) -> String {
    let mut text = uaid.to_string();
    text.truncate(8);
    text
}

/// A sentence without its end, as other findings are.
fn clause(sentence: &str) -> String {
    let sentence = sentence.trim_end_matches('.');
    sentence.strip_prefix("The ").map_or(sentence.to_owned(), |rest| format!("the {rest}"))
}

fn days(span: Span) -> u64 {
    span.0 / (24 * 60 * 60 * 1000)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use state_machine::{ClockDifference, NodeId, Time};

    use super::*;
    use crate::push::judge::{Judge, RefusedCall};
    use crate::settings::Settings;

    fn found(add: impl Fn(&mut Findings<'_>), settings: &Settings, now: Time) -> Vec<String> {
        let judge = Judge::new(settings, Time(0));
        let mut findings = Findings::new(&judge, now);
        add(&mut findings);
        findings.end().into_iter().map(|finding| finding.found).collect()
    }

    #[test]
    fn a_disk_is_named_with_its_directory_and_the_setting() {
        let disk = DiskSpace {
            free_bytes: 3 << 29,
            free_bytes_min: 1 << 30,
            messages_refused: 0,
            subscriptions_refused: 0,
        };
        let settings = Settings { data_dir: "/srv/k".into(), ..Settings::default() };
        assert_eq!(
            found(|findings| of_disk(disk, &findings.judge.data_dir, findings), &settings, Time(0)),
            [
                "the disk of /srv/k has 1.5 GiB free, and messages are refused below 1 GiB (disk_free_min)"
            ]
        );
    }

    #[test]
    fn nodes_and_clocks_that_are_wrong_are_all_named_and_an_old_refusal_is_none() {
        let peer = |node: &str, breaker| PeerStatus {
            node: NodeId::new(node),
            breaker,
            pushes_in_flight: 0,
            notifications_pending: 0,
        };
        let peers = [
            peer("http://b:1", BreakerState::HalfOpen),
            peer("http://c:1", BreakerState::Closed),
            peer("http://a:1", BreakerState::HalfOpen),
        ];
        let ahead = |seconds: i64| ClockDifference(seconds * 1000);
        let clocks = [("http://c:1", 1200), ("http://d:1", 0)];
        let clocks = clocks.map(|(node, seconds)| (NodeId::new(node), ahead(seconds)));
        let clocks = ClockComparison::of(clocks, Span::from_secs(60));
        let add = |findings: &mut Findings<'_>| {
            let (from, ahead) = (IpAddr::V4(Ipv4Addr::LOCALHOST), ahead(-172_800));
            let call = RefusedCall { at: Time(0), from, ahead };
            *findings.judge.refused_call.lock() = Some(call);
            of_peers(&peers, findings);
            of_clocks(&clocks, findings);
        };
        let settings = Settings::default();
        let silent = "2 nodes do not answer: http://a:1, http://b:1";
        let wrong = "the clock of http://c:1 is 20 min ahead of the others: set it";
        let refused = "The calls of a node at 127.0.0.1 are refused, as its clock is 48 h behind this one: set the \
                       wrong one";
        let kept = Time(REFUSED_CALL_KEPT.0);
        assert_eq!(
            found(add, &settings, Time(kept.0 - 1)),
            [silent.to_owned(), format!("{wrong}. {refused}")]
        );
        assert_eq!(found(add, &settings, kept), [silent, wrong]);
    }

    #[test]
    fn a_node_is_silent_until_a_probe_of_it_has_succeeded() {
        let judge = Judge::new(&Settings::default(), Time(0));
        let since = |breaker, now| {
            let mut findings = Findings::new(&judge, Time(now));
            let node = NodeId::new("http://10.0.0.1:8081");
            let peer = PeerStatus { node, breaker, pushes_in_flight: 0, notifications_pending: 0 };
            of_peers(&[peer], &mut findings);
            findings.end().first().map(|finding| finding.since_ms)
        };
        let open = BreakerState::Open { probe_in: Span::from_secs(1) };
        assert_eq!(since(BreakerState::Closed, 1), None);
        assert_eq!(since(open, 2), Some(2));
        assert_eq!(since(BreakerState::HalfOpen, 3), Some(2));
        assert_eq!(since(open, 4), Some(2));
        assert_eq!(since(BreakerState::Closed, 5), None);
    }
}
