//! Hostile frames for real connections in every phase.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;

use super::event_alphabet::answers;
use super::explore::Watched;
use crate::fuzz::fuzz;
use crate::transcript::{StepReport, Transcript, run};
use state_machine::connection::{Connection, Event, PhaseName};
use state_machine::store::StoreFailed;
use state_machine::time::Time;
use state_machine::wire::ClientMessage;

/// Connections of each phase that get the frames.
const EACH_PHASE: usize = 2;

/// How much longer than the frames all effects may be, as text for programmers.
const AMPLIFICATION_MAX: usize = 40;
const EFFECTS_BYTES: usize = 64 * 1024;

/// What an agent sends, one frame a line.
const FRAMES: [&str; 4] = [
    "{\"messageType\":\"hello\",\"uaid\":\"01010101010101010101010101010101\",\"broadcasts\":{\"a\":\"b\"}}\n{}\n\
     {\"messageType\":\"register\",\"channelID\":\"aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa\"}\n\
     {\"messageType\":\"unregister\",\"channelID\":\"aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa\"}",
    "{\"messageType\":\"ack\",\"updates\":[{\"channelID\":\"c1000000-0000-4000-8000-000000000000\",\
     \"version\":\"00000000000000000000000000000001\",\"code\":100}]}\n{\"messageType\":\"nack\"}\n\
     {\"messageType\":\"broadcast_subscribe\",\"broadcasts\":{\"a\":\"b\",\"c\":\"d\"}}",
    "{\"messageType\":\"urgency\",\"min\":\"high\"}\n{\"messageType\":\"ping\"}\n\
     {\"messageType\":\"urgency\",\"min\":\"very-low\"}\n{\"messageType\":\"what\"}",
    "{\"messageType\":\"hello\"}\n{\"messageType\":\"register\",\"channelID\":\"x\"}\n[]",
];

#[test]
fn no_hostile_frames_make_a_connection_panic_in_any_phase() {
    let victims = victims();
    let phases: BTreeSet<PhaseName> =
        victims.iter().map(|victim| victim.connection.phase()).collect();
    assert_eq!(phases, PhaseName::ALL.into());
    fuzz("agent_sessions", &FRAMES, |bytes| {
        for victim in &victims {
            let effects_bytes = victim.clone().suffers(bytes);
            assert!(effects_bytes <= EFFECTS_BYTES + AMPLIFICATION_MAX * bytes.len());
        }
    });
}

/// Connections of every phase, out of the session scripts.
fn victims() -> Vec<Watched> {
    let mut found: Vec<Watched> = Vec::new();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/sessions");
    let entries = fs::read_dir(folder).expect("the fixtures are part of the repository");
    let mut paths: Vec<_> =
        entries.map(|entry| entry.expect("a folder can be read").path()).collect();
    paths.sort();
    for path in paths {
        let text = fs::read_to_string(path).expect("a fixture is text");
        let script = Transcript::parse(&text).expect("fixtures are scripts");
        let connection =
            Connection::new(Arc::new(script.config.clone()), script.seed, script.start);
        let mut victim = Watched { connection, now: script.start, operations: Vec::new() };
        for StepReport { at, event, .. } in run(&script).expect("fixtures run") {
            victim.step(at, event);
            let phase = victim.connection.phase();
            let is_like = |other: &&Watched| other.connection.phase() == phase;
            if found.iter().filter(is_like).count() < EACH_PHASE {
                found.push(victim.clone());
            }
        }
    }
    found
}

impl Watched {
    /// Gets the frames, and after each what may happen next. Returns the length of all effects as text.
    fn suffers(mut self, frames: &[u8]) -> usize {
        let mut effects_bytes = 0;
        for frame in frames.split(|byte| *byte == b'\n') {
            let event = match ClientMessage::parse(&String::from_utf8_lossy(frame)) {
                Ok(message) => Event::MessageReceived(message),
                Err(frame) => Event::InvalidFrame(frame),
            };
            effects_bytes += format!("{:?}", self.step(self.now, event)).len();
            let nth = frame.iter().map(|byte| usize::from(*byte)).sum();
            if let Some((now, event)) = self.happening(nth) {
                effects_bytes += format!("{:?}", self.step(now, event)).len();
            }
        }
        effects_bytes
    }

    /// The deadline, or an answer of the store.
    fn happening(&self, nth: usize) -> Option<(Time, Event)> {
        let deadline =
            self.connection.deadline().map(|(at, _)| (at.max(self.now), Event::TimePassed));
        let answered = self.operations.iter().flat_map(|(op, operation)| {
            let all = answers(operation).into_iter().map(Ok).chain([Err(StoreFailed)]);
            all.map(|answer| (self.now, Event::StoreAnswered { op: *op, answer }))
        });
        let all: Vec<_> = answered.chain(deadline).collect();
        all.get(nth % all.len().max(1)).cloned()
    }
}
