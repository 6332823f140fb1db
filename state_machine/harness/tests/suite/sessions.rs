//! Runs every transcript of `fixtures/sessions` against the pure machine.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use crate::fixtures::{Fixture, fixtures};
use harness::invariants::CheckedConnection;
use harness::transcript::{StepReport, Transcript, run};
use state_machine::connection::{BroadcastsDue, Connection, Event};
use state_machine::wire::ClientMessage;

#[test]
fn every_session_runs_as_it_is_written() {
    let mut failures = Vec::new();
    for Fixture { file, text } in sessions() {
        match Transcript::parse(&text) {
            Err(error) => failures.push(format!("{file}:{error}")),
            Ok(transcript) => {
                failures.extend(run(&transcript).err().map(|error| format!("{file}:{error}")));
            }
        }
    }
    assert!(failures.is_empty(), "\n\n{}\n", failures.join("\n\n"));
}

#[test]
fn every_session_keeps_every_rule() {
    for Fixture { file, text } in sessions() {
        let transcript = Transcript::parse(&text).unwrap();
        let config = Arc::new(transcript.config.clone());
        let mut watched = CheckedConnection::new(config, transcript.seed, transcript.start);
        for StepReport { at, event, .. } in run(&transcript).unwrap() {
            let kept = watched.step(at, &event);
            assert!(kept.is_ok(), "{file}: {}", kept.unwrap_err());
        }
    }
}

/// A driver passes the broadcasts on where the machine asks for them.
#[test]
fn broadcasts_are_due_before_a_hello_and_after_a_subscription_that_names_some() {
    for Fixture { file, text } in sessions() {
        let transcript = Transcript::parse(&text).unwrap();
        let config = Arc::new(transcript.config.clone());
        let mut connection = Connection::new(config, transcript.seed, transcript.start);
        for StepReport { at, event, .. } in run(&transcript).unwrap() {
            let due = match &event {
                Event::MessageReceived(ClientMessage::Hello { broadcasts, .. }) => {
                    (!broadcasts.is_empty()).then_some(BroadcastsDue::Before)
                }
                Event::MessageReceived(ClientMessage::BroadcastSubscribe { broadcasts }) => {
                    (!broadcasts.is_empty()).then_some(BroadcastsDue::After)
                }
                _ => None,
            };
            assert_eq!(connection.broadcasts_due(&event), due, "{file}: {event:?}");
            connection.step(at, event);
        }
    }
}

#[test]
fn a_session_printed_as_a_trace_is_the_same_session() {
    for Fixture { file, text } in sessions() {
        let printed = print(&text);
        assert_eq!(print(&printed), printed, "{file}");
    }
}

#[test]
fn every_title_is_a_sentence_of_its_own() {
    let mut titles: Vec<String> =
        sessions().iter().map(|session| Transcript::parse(&session.text).unwrap().title).collect();
    let wrong: Vec<&String> = titles.iter().filter(|title| !title.ends_with('.')).collect();
    assert_eq!(wrong, Vec::<&String>::new());
    let files = titles.len();
    titles.sort();
    titles.dedup();
    assert_eq!(titles.len(), files);
}

/// Runs a transcript and prints what happened.
fn print(text: &str) -> String {
    let transcript = Transcript::parse(text).unwrap();
    let ran = run(&transcript).unwrap();
    let steps: Vec<String> = ran.iter().map(|ran| transcript.writer().ran(ran)).collect();
    transcript.head() + "\n" + &steps.join("")
}

fn sessions() -> Vec<Fixture> {
    const SESSIONS_MIN: usize = 80;
    fixtures("sessions", "session", SESSIONS_MIN)
}
