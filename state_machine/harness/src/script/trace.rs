//! The trace of a run: what `kalends dev replay` prints with `--trace` and `--json`, and `dev view` shows.

use std::fmt;

use serde::Serialize;

use super::tokens::span_text;
use state_machine::Time;
use state_machine::time::Span;

/// A step that was run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TraceStep {
    /// The line of the input in the file.
    pub line: usize,
    /// Milliseconds since the start of the script.
    pub at_ms: u64,
    /// The input as the file has it.
    pub event: String,
    /// All effects, in their order.
    pub effects: Vec<String>,
    /// The effects that the script expects, if the machines did something else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<Vec<String>>,
    /// Every machine after the step.
    pub machines: Vec<MachineState>,
    /// What else is known after the step, such as the record in the store.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<String>,
}

/// A machine after a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MachineState {
    /// Its name in the script; that of its kind if there is no other.
    pub name: String,
    pub kind: MachineKind,
    pub phase: String,
    /// The messages that wait for an ack.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unacked: Vec<Unacked>,
    /// What it waits for, the earliest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deadlines: Vec<Deadline>,
}

/// Each has a diagram of its phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MachineKind {
    Connection,
    Delivery,
    Publisher,
    Consumer,
}

/// A message that was sent and not acked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unacked {
    pub message: String,
    pub channel: String,
    /// When it was sent; none if its ack is overdue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_at_ms: Option<i64>,
}

/// A time at which a machine acts if nothing happens before, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Deadline {
    /// Milliseconds since the start of the script.
    pub at_ms: i64,
    pub reason: String,
}

impl MachineKind {
    /// Its name in a trace.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Delivery => "delivery",
            Self::Publisher => "publisher",
            Self::Consumer => "consumer",
        }
    }
}

impl MachineState {
    pub(crate) fn new(name: impl Into<String>, kind: MachineKind, phase: &impl ToString) -> Self {
        let phase = phase.to_string();
        Self { name: name.into(), kind, phase, unacked: Vec::new(), deadlines: Vec::new() }
    }

    pub(crate) fn with_deadlines(
        mut self,
        deadlines: impl Iterator<Item = (Time, String)>,
        start: Time,
    ) -> Self {
        let deadline = |(at, reason)| Deadline { at_ms: since(at, start), reason };
        self.deadlines = deadlines.map(deadline).collect();
        self.deadlines.sort();
        self
    }
}

/// Milliseconds from `start` to `at`; negative if it is before.
pub(crate) fn since(at: Time, start: Time) -> i64 {
    let distance = |span: Span| i64::try_from(span.0).unwrap_or(i64::MAX);
    if at >= start { distance(at.since(start)) } else { -distance(start.since(at)) }
}

/// The lines of a script, with the state after the step as a comment, and a blank line.
impl fmt::Display for TraceStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.event)?;
        let machine = |it: &MachineState| match self.machines.len() {
            1 => it.to_string(),
            _ => format!("{}: {it}", it.name),
        };
        let machines: Vec<String> = self.machines.iter().map(machine).collect();
        let states = [machines.join("; ")].into_iter().chain(self.facts.iter().cloned());
        for state in states.filter(|state| !state.is_empty()) {
            writeln!(f, "# {state}")?;
        }
        self.effects.iter().try_for_each(|effect| writeln!(f, "{effect}"))
    }
}

/// The phase, and the earliest deadline.
impl fmt::Display for MachineState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.phase)?;
        match self.deadlines.first() {
            Some(Deadline { at_ms, reason }) => write!(f, ", {reason} at {}", offset(*at_ms)),
            None => Ok(()),
        }
    }
}

/// Writes milliseconds from the start as the scripts do.
fn offset(ms: i64) -> String {
    let text = span_text(Span(ms.unsigned_abs()));
    if ms < 0 { format!("-{text}") } else { format!("+{text}") }
}
