//! The agent holds less urgent messages back, and releases them.

use state_machine::connection::Wait;
use state_machine::{Message, Month, Urgency};

use crate::models::scenario::{Bounds, DECEMBER, Freedom, Scenario, message};
use crate::search::{holds, is_large};

#[test]
fn an_agent_that_changes_its_minimal_urgency_is_promised_the_same() {
    let least = Message { urgency: Urgency::VeryLow, ..message(0) };
    let others = (1..2 + usize::from(is_large())).map(message);
    let messages = [least].into_iter().chain(others).collect();
    let scenario = Scenario::new("urgency", Month::of(DECEMBER), messages)
        .waiting([0])
        .free(Freedom { acks_tarry: is_large(), ..Freedom::default() })
        .bound(Bounds { connects: 1, urgencies: 2, ..Bounds::default() })
        .seen("a message is held back", |search, world| {
            let [held, ..] = &search.scenario.messages[..] else { return false };
            world.agent.min_urgency == Urgency::Normal && world.is_stored(held.id)
        });
    holds(&scenario);
}

/// Within `ack_wait` only the first lower minimum has storage read.
#[test]
fn an_agent_that_changes_its_minimal_urgency_often_is_promised_the_same() {
    let least = Message { urgency: Urgency::VeryLow, ..message(0) };
    let scenario = Scenario::new("urgency_changed_often", Month::of(DECEMBER), vec![least])
        .free(Freedom { acks_tarry: true, ..Freedom::default() })
        .bound(Bounds { connects: 1, urgencies: 4, ..Bounds::default() })
        .seen("a lower minimum waits for the next scan", |_, world| {
            let mut deadlines =
                world.connections.values().filter_map(|connection| connection.machine.deadline());
            world.agent.min_urgency == Urgency::VeryLow
                && deadlines.any(|(_, wait)| wait == Wait::Scan)
        });
    holds(&scenario);
}
