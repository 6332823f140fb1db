//! The facts of a node that are judged.

use std::time::{Duration, Instant};

use actors::broadcasts::BroadcastView;
use actors::observe::{BreakerState, PeerStatus};
use actors::registry::CountConnections;
use state_machine::{ClockComparison, ClockDifference, Month, Span, Uaid};
use storage::{DiskSpace, StoreError};
use tokio::time::timeout;

use super::app::{AppState, SharedState, WebSocketRole};
use super::judge::{Check, Findings, Judge, Judgement, clocks, disk};
use crate::limits::{PortName, PortState};
use crate::system::clock::day;
use crate::system::printable::{count, time_left};
use crate::system::tls::certificate::Certificate;
use crate::system::unix_socket::Lost;

/// Maximum time for the store or the registry to answer a check.
const CHECK_WAIT: Duration = Duration::from_secs(2);

/// Why a disk is found although it may have more than `disk_free_min`: a quota, or no inodes.
const NOT_WRITTEN: &str = "nothing can be written to it now";

/// A port is nearly full if less than this part of its connections is left.
const NEARLY_FULL_PART: usize = 10;

/// What a public port does that is full.
const PORT_FULL: &str = "New connections are answered 503, or closed before TLS, so no further user agent connects. Those that are \
     connected stay so.";

/// What to do about a disk whose space this process does not know.
const FREE_SPACE: &str = "Free some space on the disk of the database.";

/// What to do about a file in the place of the socket.
const REMOVE_FILE: &str = "Remove that file, then restart the server. If systemd made the socket, restart its unit `kalends.socket`.";

/// What to do if the open files bound the connections.
const RAISE_FILES: &str = "Raise the limit of open files: LimitNOFILE of the unit, or ulimit -n.";

/// What to do with a certificate that begins later.
const TOO_EARLY: &str = "Compare the clock of this machine with another. If it is right, use a certificate that is valid now.";

/// Nodes that a sentence names.
const NAMED_MAX: usize = 5;

/// Time for which a refused call of a node is found. Nodes that are up call more often.
const REFUSED_CALL_KEPT: Span = Span::from_secs(5 * 60);

impl AppState {
    /// Takes at most twice [`CHECK_WAIT`], and writes a row to see that the store keeps it.
    pub async fn judge(&self) -> Judgement {
        let common = &*self.common;
        let answer = timeout(CHECK_WAIT, common.store.check()).await;
        let late =
            |_| Err(StoreError::Failed(format!("no answer within {} s", CHECK_WAIT.as_secs())));
        *common.judge.store_failure.lock() = answer.unwrap_or_else(late).err();
        self.judge_in_memory().await
    }

    /// By what is in memory: of the store it is the last check.
    pub async fn judge_in_memory(&self) -> Judgement {
        let common = &*self.common;
        let mut findings = Findings::new(&common.judge, common.clock.now());
        of_store(common.store.state().disk, &mut findings);
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
        let (how, remedy) = match lost {
            Lost::Removed => ("removed", Check::Socket.remedy()),
            Lost::Replaced => ("replaced by another file", REMOVE_FILE),
        };
        let found = format!("the socket {} was {how}", place.path().display());
        findings.add(Check::Socket, found).remedy = remedy.into();
    }
    let certificates = &common.certificates;
    match (certificates.current(), &*certificates.awaited.lock()) {
        (Some(current), _) => of_certificate(&current, &judge.certificate_of, findings),
        (None, Some(why)) => {
            let found = format!("there is no certificate yet ({})", judge.certificate_of);
            let found = findings.add(Check::Certificate, found);
            (found.why, found.remedy) = (Some(why.clone()), judge.remedies.certificate.into());
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
        let why = Some(reasons.join("; ")).filter(|why| !why.is_empty());
        findings.add(Check::Maintenance, found).why = why;
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
    if connections <= max - max / NEARLY_FULL_PART {
        return;
    }
    let are_files_few = max < findings.judge.connections_wanted.get().copied().unwrap_or(max);
    let (limit, remedy) = match are_files_few {
        true => (format!("{max} connections that the limit of open files allows"), RAISE_FILES),
        false => (format!("connections_max = {max} connections"), "Raise connections_max."),
    };
    let found = findings.add(Check::Connections, format!("{connections} of {limit} are open"));
    found.remedy = remedy.into();
    if connections >= max {
        found.effect = PORT_FULL.into();
    }
}

/// A store whose disk is full answers, so that is a finding of the disk alone.
fn of_store(disk: Option<DiskSpace>, findings: &mut Findings) {
    let Judge { store_failure, database, remedies, .. } = findings.judge;
    let failure = store_failure.lock().clone();
    let is_full = failure == Some(StoreError::NoSpace);
    if let Some(why) = findings.judge.store_reason().filter(|_| !is_full) {
        let found = findings.add(Check::Store, format!("{database} does not answer"));
        (found.why, found.remedy) = (Some(why), remedies.store.into());
    }
    of_disk(disk, is_full, findings);
}

fn of_disk(disk: Option<DiskSpace>, is_full: bool, findings: &mut Findings) {
    let Judge { data_dir, database, .. } = findings.judge;
    let Some(DiskSpace { free_bytes: free, free_bytes_min: min, .. }) = disk else {
        if is_full {
            let found = findings.add(Check::Space, format!("the disk of {database} is full"));
            found.remedy = FREE_SPACE.into();
        }
        return;
    };
    let is_low = disk::is_low(free, min);
    let space = if is_low { disk::low(free, min) } else { disk::free(free) };
    let found = format!("the disk of {data_dir} has {space}");
    if is_full {
        findings.add(Check::Space, found).why = Some(NOT_WRITTEN.to_owned());
    } else if free < min {
        findings.add(Check::Space, found);
    } else if is_low {
        findings.add(Check::Disk, found);
    }
}

fn of_certificate(certificate: &Certificate, of: &str, findings: &mut Findings) {
    let (now, valid, last_day) = (findings.now, certificate.valid, certificate.last_day());
    let remedies = &findings.judge.remedies;
    if now < valid.begins {
        let begins = day(valid.begins.as_secs());
        let found = format!("the certificate is not valid yet: it begins only on {begins} ({of})");
        findings.add(Check::Certificate, found).remedy = TOO_EARLY.into();
    } else if now >= valid.expires {
        let found = format!("the certificate ended on {last_day} ({of})");
        findings.add(Check::Certificate, found).remedy = remedies.certificate.into();
    } else if let Some(left) = valid.ends_soon(now) {
        let left = time_left(left);
        let found = format!("the certificate ends in {left}, on {last_day} ({of})");
        findings.add(Check::CertificateEnds, found).remedy = remedies.certificate.into();
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
    let found = match agents.len() {
        0 => return,
        1 => format!("two programs use one uaid, which begins with {named}"),
        many => format!("{many} uaids are each used by two programs; they begin with {named}"),
    };
    findings.add(Check::Rivals, found);
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
    let age = |at| ClockDifference::between(findings.now, at).span();
    if let Some(call) = refused.filter(|call| age(call.at) < REFUSED_CALL_KEPT) {
        let (from, distance) = (call.from, clocks::distance(call.ahead));
        sentences.push(format!(
            "Calls from {from} are refused, as their clock is {distance} this one: if it is that of a node, set the wrong one."
        ));
    }
    if !sentences.is_empty() {
        findings.add(Check::Clock, clause(&sentences.join(" ")));
    }
}

/// The first eight characters, which distinguish the agents of a server. The whole one lets anybody connect as the agent.
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
    use std::sync::Arc;

    use rcgen::{CertificateParams, KeyPair};
    use rustls::crypto::aws_lc_rs::default_provider;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::sign::CertifiedKey;
    use state_machine::{NodeId, Time};

    use super::*;
    use crate::push::judge::RefusedCall;
    use crate::settings::value::Value;
    use crate::settings::{DomainName, Settings};
    use crate::system::tls::certificate::Validity;

    fn found(add: impl Fn(&mut Findings<'_>), settings: &Settings, now: Time) -> Vec<String> {
        let judge = Judge::new(settings, Time(0));
        let mut findings = Findings::new(&judge, now);
        add(&mut findings);
        findings.end().into_iter().map(|finding| finding.found).collect()
    }

    const GIB: u64 = 1 << 30;

    fn disk(free_bytes: u64, free_bytes_min: u64) -> DiskSpace {
        DiskSpace { free_bytes, free_bytes_min, messages_refused: 0, subscriptions_refused: 0 }
    }

    #[test]
    fn a_disk_is_named_with_its_directory_and_the_setting() {
        let settings = Settings { data_dir: "/srv/k".into(), ..Settings::default() };
        let disk = Some(disk(3 << 29, GIB));
        assert_eq!(
            found(|findings| of_store(disk, findings), &settings, Time(0)),
            [
                "the disk of /srv/k has 1.5 GiB free, and messages are refused below 1 GiB (disk_free_min)"
            ]
        );
    }

    #[test]
    fn a_full_disk_is_one_finding_and_another_failure_is_that_of_the_store() {
        let settings = Settings { data_dir: "/srv/k".into(), ..Settings::default() };
        let full = Some(StoreError::NoSpace);
        let failed = Some(StoreError::Failed("it is gone".to_owned()));
        let written = Some(NOT_WRITTEN);
        for (failure, disk, expected) in [
            (&None, Some(disk(4 * GIB, GIB)), &[][..]),
            (&None, Some(disk(GIB, GIB)), &[(Check::Disk, None)]),
            (&None, Some(disk(GIB - 1, GIB)), &[(Check::Space, None)]),
            (&full, Some(disk(0, GIB)), &[(Check::Space, written)]),
            (&full, Some(disk(0, 0)), &[(Check::Space, written)]),
            (&full, Some(disk(9 * GIB, GIB)), &[(Check::Space, written)]),
            (&full, None, &[(Check::Space, None)]),
            (&failed, Some(disk(9 * GIB, GIB)), &[(Check::Store, Some("it is gone"))]),
            (
                &failed,
                Some(disk(0, GIB)),
                &[(Check::Store, Some("it is gone")), (Check::Space, None)],
            ),
        ] {
            let judge = Judge::new(&settings, Time(0));
            judge.store_failure.lock().clone_from(failure);
            let mut findings = Findings::new(&judge, Time(0));
            of_store(disk, &mut findings);
            let found = findings.end();
            let found: Vec<_> = found.iter().map(|it| (it.check, it.why.as_deref())).collect();
            assert_eq!(found, expected, "{failure:?} {disk:?}");
        }
    }

    #[test]
    fn a_full_port_says_so_and_names_what_bounds_it() {
        let told = |connections, wanted| {
            let judge = Judge::new(&Settings::default(), Time(0));
            judge.connections_wanted.get_or_init(|| wanted);
            let mut findings = Findings::new(&judge, Time(0));
            of_port(PortState { connections, connections_max: 20, times_full: 0 }, &mut findings);
            findings.end().pop().map(|it| (it.found, it.effect, it.remedy))
        };
        assert_eq!(told(18, 20), None);
        let (found, effect, remedy) = told(19, 20).unwrap();
        assert_eq!(found, "19 of connections_max = 20 connections are open");
        assert!(effect.starts_with("When all are taken, "), "{effect}");
        assert_eq!(remedy, "Raise connections_max.");
        let (found, effect, remedy) = told(20, 21).unwrap();
        assert_eq!(found, "20 of 20 connections that the limit of open files allows are open");
        assert_eq!((&*effect, &*remedy), (PORT_FULL, RAISE_FILES));
    }

    #[test]
    fn a_certificate_is_wrong_before_it_begins_and_after_its_end_with_what_fits_its_setting() {
        const DAY: u64 = 24 * 60 * 60 * 1000;
        let key = KeyPair::generate().unwrap();
        let signed = CertificateParams::default().self_signed(&key).unwrap();
        let private = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let chain = vec![signed.der().clone()];
        let key = CertifiedKey::from_der(chain, private, &default_provider()).unwrap();
        let valid = Validity { begins: Time(DAY), expires: Time(91 * DAY) };
        let certificate = Certificate { key: Arc::new(key), valid };
        let told = |settings: &Settings, now| {
            let judge = Judge::new(settings, Time(0));
            let mut findings = Findings::new(&judge, Time(now));
            of_certificate(&certificate, "it", &mut findings);
            findings.end().pop().map(|it| (it.check, it.found, it.remedy))
        };
        let files = Settings::default();
        let name = DomainName::parse("push.example.net").ok();
        let domain = Settings { domain: name, ..Settings::default() };
        assert_eq!(told(&files, DAY), None);
        let early =
            "the certificate is not valid yet: it begins only on 02 Jan 1970 (it)".to_owned();
        assert_eq!(told(&files, DAY - 1), Some((Check::Certificate, early, TOO_EARLY.into())));
        for (now, check, found) in [
            (
                88 * DAY + 1,
                Check::CertificateEnds,
                "the certificate ends in 2 days, on 02 Apr 1970 (it)",
            ),
            (91 * DAY, Check::Certificate, "the certificate ended on 02 Apr 1970 (it)"),
        ] {
            for (settings, named, other) in
                [(&files, "tls_key", "order"), (&domain, "order", "tls_")]
            {
                let (at, text, remedy) = told(settings, now).unwrap();
                assert_eq!((at, &*text), (check, found));
                assert!(remedy.contains(named) && !remedy.contains(other), "{remedy}");
            }
        }
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
        let called = Time(2 * REFUSED_CALL_KEPT.0);
        let add = |findings: &mut Findings<'_>| {
            let (from, ahead) = (IpAddr::V4(Ipv4Addr::LOCALHOST), ahead(-172_800));
            let call = RefusedCall { at: called, from, ahead };
            *findings.judge.refused_call.lock() = Some(call);
            of_peers(&peers, findings);
            of_clocks(&clocks, findings);
        };
        let settings = Settings::default();
        let silent = "2 nodes do not answer: http://a:1, http://b:1";
        let wrong = "the clock of http://c:1 is 20 min ahead of the others: set it";
        let refused = "Calls from 127.0.0.1 are refused, as their clock is 48 h behind this one: if it is that of a \
                       node, set the wrong one";
        let kept = Time(called.0 + REFUSED_CALL_KEPT.0);
        assert_eq!(
            found(add, &settings, Time(kept.0 - 1)),
            [silent.to_owned(), format!("{wrong}. {refused}")]
        );
        assert_eq!(found(add, &settings, kept), [silent, wrong]);
        // This clock was the wrong one, and was set back.
        assert_eq!(found(add, &settings, Time(0)), [silent, wrong]);
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
