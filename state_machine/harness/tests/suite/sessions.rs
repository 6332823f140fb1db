//! What every session of `fixtures/sessions` keeps.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use crate::fixtures::Fixture;
use crate::scripts::scripts;
use harness::invariants::CheckedConnection;
use harness::scripts::Language;
use harness::transcript::{StepReport, Transcript, run};
use state_machine::connection::{BroadcastsDue, Connection, Event};
use state_machine::wire::ClientMessage;

#[test]
fn every_session_keeps_every_rule() {
    scripts(Language::Session)
        .iter()
        .for_each(|Fixture { file, text }| keeps_every_rule(file, text));
}

/// Runs a session and checks every rule at each of its steps.
pub(crate) fn keeps_every_rule(file: &str, text: &str) {
    let transcript = Transcript::parse(text).unwrap();
    let config = Arc::new(transcript.config.clone());
    let mut watched = CheckedConnection::new(config, transcript.seed, transcript.start);
    for StepReport { at, event, .. } in
        run(&transcript).unwrap_or_else(|error| panic!("{file}:{error}"))
    {
        let kept = watched.step(at, &event);
        assert!(kept.is_ok(), "{file}: {}", kept.unwrap_err());
    }
}

/// A driver passes the broadcasts on where the machine asks for them.
#[test]
fn broadcasts_are_due_before_a_hello_and_after_a_subscription_that_names_some() {
    for Fixture { file, text } in scripts(Language::Session) {
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
