//! What every session of `fixtures/sessions` keeps.

use std::sync::Arc;

use crate::fixtures::{Fixture, fixtures};
use harness::invariants::CheckedConnection;
use harness::transcript::{StepReport, Transcript, run};
use state_machine::connection::{BroadcastsDue, Connection, Event};
use state_machine::wire::ClientMessage;

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

fn sessions() -> Vec<Fixture> {
    const SESSIONS_MIN: usize = 80;
    fixtures("sessions", "session", SESSIONS_MIN)
}
