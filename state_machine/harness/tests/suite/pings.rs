//! The floor for pings when the clock of the node is changed. Session scripts have its other rules.

use std::sync::Arc;

use harness::transcript::{default_config, default_limits};
use state_machine::connection::{Connection, ConnectionSeed, Effect, Event};
use state_machine::ids::Uaid;
use state_machine::time::{Span, Time};
use state_machine::wire::{ClientMessage, ServerMessage};

const OPENED_AT: Time = Time(1_793_700_000_000);
const HOUR: Span = Span::from_secs(3600);

#[test]
fn a_clock_that_is_set_back_does_not_silence_pings() {
    let config = default_config(default_limits());
    let seed = ConnectionSeed { fresh_uaid: Uaid([9; 16]), jitter: 0 };
    let mut connection = Connection::new(Arc::new(config), seed, OPENED_AT);
    let hello = ClientMessage::Hello { uaid: None, broadcasts: [].into(), use_webpush: true };
    connection.step(OPENED_AT, Event::MessageReceived(hello));
    let mut is_answered = |now| {
        let effects = connection.step(now, Event::MessageReceived(ClientMessage::Ping));
        effects.contains(&Effect::Send(ServerMessage::Pong))
    };
    assert!(is_answered(OPENED_AT));
    assert!(!is_answered(OPENED_AT + Span(2999)));
    let set_back = OPENED_AT - HOUR;
    assert!(is_answered(set_back));
    assert!(!is_answered(set_back + Span(2999)));
    assert!(is_answered(set_back + Span(3000)));
    assert!(is_answered(OPENED_AT));
}
