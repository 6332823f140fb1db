//! The report at the end of a run.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::ledger::Tally;
use super::plan::Plan;
use super::state::{Hellos, NodeTally, RunState};

/// The figures of a completed run.
pub(super) struct Report {
    seed: u64,
    storm: Duration,
    clients: usize,
    nodes: NodeTally,
    /// The number of injected faults of the store, by name.
    faults: BTreeMap<&'static str, usize>,
    hellos: Hellos,
    pub(super) messages: Tally,
    /// Times until all agents had reconnected after a kill, in ascending order.
    reconnects: Vec<Duration>,
    /// The same while the store was faulty.
    reconnects_during_outages: Vec<Duration>,
    records_lost: usize,
    findings: Vec<String>,
}

impl Report {
    pub(super) fn of(
        plan: &Plan,
        state: &RunState,
        faults: BTreeMap<&'static str, usize>,
        records_lost: usize,
    ) -> Self {
        let (ledger, reconnects) = (state.ledger(), state.reconnects());
        let took = |is_ill: bool| {
            let over = reconnects.over().iter();
            let over = over.filter(|over| state.store_was_faulty(over.from, over.until) == is_ill);
            let mut took: Vec<_> = over.map(|over| over.until - over.from).collect();
            took.sort();
            took
        };
        let mut nodes = state.nodes();
        nodes.ends.sort();
        nodes.ends_during_outages.sort();
        Self {
            seed: plan.seed,
            storm: plan.size.storm,
            clients: plan.size.clients,
            nodes,
            faults,
            hellos: state.hellos(),
            messages: ledger.tally(),
            reconnects: took(false),
            reconnects_during_outages: took(true),
            records_lost,
            findings: ledger.findings().to_vec(),
        }
    }

    /// Panics if a promise was broken.
    pub(super) fn assert_no_findings(&self) {
        let is_clean = self.findings.is_empty() && self.records_lost == 0;
        assert!(is_clean, "{self}\n{}", self.findings.join("\n"));
    }
}

impl Report {
    /// The rows of the report: name and value.
    fn rows(&self) -> Vec<(&'static str, String)> {
        let Self { nodes, hellos, messages, .. } = self;
        let faults = self.faults.iter().map(|(name, count)| format!("{count} {name}"));
        vec![
            ("seed, storm", format!("{}, {} s", self.seed, self.storm.as_secs())),
            ("user agents", self.clients.to_string()),
            ("nodes killed with -9", nodes.kills.to_string()),
            ("nodes stopped for a while", nodes.stops.to_string()),
            ("nodes asked to end, and the time that took", middle_and_longest(&nodes.ends)),
            ("the same during store faults", middle_and_longest(&nodes.ends_during_outages)),
            ("starts that failed because the store was down", nodes.failed_starts.to_string()),
            ("store faults", faults.collect::<Vec<_>>().join(", ")),
            ("hellos answered", hellos.answered.to_string()),
            ("connections refused or ended before that", hellos.refused.to_string()),
            ("hellos given up after 10 s and sent again", hellos.given_up.to_string()),
            ("longest time from the first try to a hello", seconds(hellos.longest)),
            (
                "kills, and the time until all agents were back",
                middle_and_longest(&self.reconnects),
            ),
            ("the same during store faults", middle_and_longest(&self.reconnects_during_outages)),
            ("messages posted", messages.posted.to_string()),
            ("accepted (201)", messages.accepted.to_string()),
            ("refused (503), not answered", messages.refusals()),
            ("delivered during their push, delivered later", messages.comings()),
            ("delivered again with a further id", messages.copies.to_string()),
            ("delivered again before an ack", messages.again_before_ack.to_string()),
            (
                "delivered again after an ack that was not settled",
                messages.again_before_settled.to_string(),
            ),
            ("acks settled", messages.settled.to_string()),
            ("expired, replaced by their topic", messages.reasons()),
            ("**lost**", messages.lost.to_string()),
            ("**delivered again after a settled ack**", messages.again_after_settled.to_string()),
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

/// The number of values, their median and their maximum.
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
