//! What a session's actor was seen to do, as lines of a transcript.

use std::sync::{Arc, Mutex};

use actors::Clock;
use harness::transcript::Transcript;
use state_machine::connection::Effect;

/// The lines since they were last taken. Frames, orders to the store and the close stand in
/// the sequence in which the actor gave them.
pub(crate) struct Record {
    pub(crate) transcript: Arc<Transcript>,
    pub(crate) clock: Clock,
    lines: Mutex<Vec<String>>,
}

impl Record {
    pub(crate) fn new(transcript: &Arc<Transcript>, clock: Clock) -> Self {
        Self { transcript: Arc::clone(transcript), clock, lines: Mutex::default() }
    }

    /// An order, as it is written now.
    pub(crate) fn ordered(&self, effect: &Effect) {
        self.note(self.transcript.writer().effect(effect, self.clock.now()));
    }

    pub(crate) fn note(&self, line: String) {
        self.lines.lock().unwrap().push(line);
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock().unwrap())
    }
}
