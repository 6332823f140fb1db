//! The log of a counterexample, written only when one is printed. It is not part of a state.

use std::hash::{Hash, Hasher};

use harness::transcript::TranscriptWriter;
use state_machine::connection::{Config, Effect, Event};
use state_machine::{ConnectionId, Time};

use super::action::Action;
use super::scenario::DECEMBER;

/// The lines of the log; none while the checker searches.
#[derive(Debug, Clone, Default)]
pub(crate) struct Diary(Option<Vec<String>>);

impl Diary {
    /// A diary that is written.
    pub(crate) fn open() -> Self {
        Self(Some(Vec::new()))
    }

    pub(crate) fn text(self) -> String {
        self.0.unwrap_or_default().join("\n")
    }

    pub(crate) fn heading(&mut self, action: &Action) {
        self.note(|| format!("{action:?}"));
    }

    pub(crate) fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.0 {
            lines.push(line());
        }
    }

    /// A step of a connection, in the form of a session script.
    pub(crate) fn step(
        &mut self,
        line: ConnectionId,
        config: &Config,
        now: Time,
        event: &Event,
        effects: &[Effect],
    ) {
        let Some(lines) = &mut self.0 else { return };
        let writer = TranscriptWriter { config, start: DECEMBER };
        lines.push(format!("    {} {}", line.0, writer.event(event, DECEMBER, now)));
        let effects = effects.iter().map(|effect| writer.effect(effect, now));
        lines.extend(effects.map(|effect| format!("    {}     {effect}", line.0)));
    }
}

impl PartialEq for Diary {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Diary {}

impl Hash for Diary {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}
