//! What is said at the end of a run.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::ledger::Tally;
use super::plan::Plan;
use super::scene::{Hellos, NodeTally, Scene};
use crate::harness::Cluster;

/// A run that is over.
pub(super) struct Report {
    seed: u64,
    storm: Duration,
    clients: usize,
    nodes: NodeTally,
    /// How often each fault of the store was made.
    faults: BTreeMap<&'static str, usize>,
    hellos: Hellos,
    pub(super) messages: Tally,
    /// How long it took until all were back after a kill, the shortest first.
    comebacks: Vec<Duration>,
    /// The same while the store was ill.
    comebacks_ill: Vec<Duration>,
    records_lost: usize,
    findings: Vec<String>,
}

impl Report {
    pub(super) fn of(plan: &Plan, scene: &Scene, cluster: &Cluster, records_lost: usize) -> Self {
        let (ledger, comebacks) = (scene.ledger(), scene.comebacks());
        let took = |is_ill: bool| {
            let over = comebacks.over().iter();
            let over = over.filter(|over| scene.store_was_ill(over.from, over.until) == is_ill);
            let mut took: Vec<_> = over.map(|over| over.until - over.from).collect();
            took.sort();
            took
        };
        let mut nodes = scene.nodes();
        nodes.ends.sort();
        nodes.ends_ill.sort();
        Self {
            seed: plan.seed,
            storm: plan.size.storm,
            clients: plan.size.clients,
            nodes,
            faults: cluster.proxy.faults(),
            hellos: scene.hellos(),
            messages: ledger.tally(),
            comebacks: took(false),
            comebacks_ill: took(true),
            records_lost,
            findings: ledger.findings().to_vec(),
        }
    }

    /// Fails where a promise was broken.
    pub(super) fn must_be_clean(&self) {
        let is_clean = self.findings.is_empty() && self.records_lost == 0;
        assert!(is_clean, "{self}\n{}", self.findings.join("\n"));
    }
}

impl Report {
    /// What is measured, and what came of it.
    fn rows(&self) -> Vec<(&'static str, String)> {
        let Self { nodes, hellos, messages, .. } = self;
        let faults = self.faults.iter().map(|(name, count)| format!("{count} {name}"));
        vec![
            ("seed, storm", format!("{}, {} s", self.seed, self.storm.as_secs())),
            ("user agents", self.clients.to_string()),
            ("nodes killed with -9", nodes.kills.to_string()),
            ("nodes stopped for a while", nodes.stops.to_string()),
            ("nodes told to end, and how long that took", middle_and_longest(&nodes.ends)),
            ("the same while the store was ill", middle_and_longest(&nodes.ends_ill)),
            ("starts that failed because the store was away", nodes.failed_starts.to_string()),
            ("faults of the store", faults.collect::<Vec<_>>().join(", ")),
            ("hellos answered", hellos.answered.to_string()),
            ("connections refused or ended before that", hellos.refused.to_string()),
            ("hellos given up after 10 s and said again", hellos.given_up.to_string()),
            ("longest time from the first try to a hello", seconds(hellos.longest)),
            ("kills, and how long until all were back", middle_and_longest(&self.comebacks)),
            ("the same while the store was ill", middle_and_longest(&self.comebacks_ill)),
            ("messages posted", messages.posted.to_string()),
            ("accepted (201)", messages.accepted.to_string()),
            ("refused (503), not answered", messages.refusals()),
            ("came during their push, came later", messages.comings()),
            ("came again before an ack", messages.again_before_ack.to_string()),
            ("came again after an ack not settled", messages.again_before_settled.to_string()),
            ("acks settled", messages.settled.to_string()),
            ("expired, replaced by their topic", messages.reasons()),
            ("**lost**", messages.lost.to_string()),
            ("**came again after a settled ack**", messages.again_after_settled.to_string()),
            ("**user records lost**", self.records_lost.to_string()),
        ]
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| | |\n|---|---|")?;
        self.rows().iter().try_for_each(|(what, came)| writeln!(f, "| {what} | {came} |"))
    }
}

/// How many, and what the middle one and the longest are.
fn middle_and_longest(times: &[Duration]) -> String {
    let (middle, longest) = (times.get(times.len() / 2), times.iter().max());
    match (middle, longest) {
        (Some(middle), Some(longest)) => {
            let (middle, longest) = (seconds(*middle), seconds(*longest));
            format!("{}: median {middle}, longest {longest}", times.len())
        }
        _ => "0".to_owned(),
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f32())
}
