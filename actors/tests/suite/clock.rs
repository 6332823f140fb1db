//! Tests of the node's clock.

use actors::Clock;
use state_machine::{Span, Time};

use crate::clockwork::{self, pass};

#[clockwork::test]
async fn a_clock_advances_from_the_time_it_was_set_to() {
    let clock = Clock::starting_at(Time(1_000_000));
    pass(Span(250)).await;
    assert_eq!(clock.now(), Time(1_000_250));
    clock.set(Time(500));
    assert_eq!(clock.now(), Time(500));
    pass(Span(250)).await;
    assert_eq!(clock.now(), Time(750));
}

#[clockwork::test]
async fn the_copies_of_a_clock_are_set_together() {
    let clock = Clock::starting_at(Time(1_000_000));
    let copy = clock.clone();
    clock.set(Time(7));
    assert_eq!(copy.now(), Time(7));
}
