//! The store is throttled: it rejects operations without executing them, and the machine repeats
//! each at its deadline.

use state_machine::Month;
use state_machine::connection::{PhaseName, Wait};
use state_machine::delivery::Outcome;

use crate::models::endpoint::Push;
use crate::models::scenario::{Bounds, Freedom, NOVEMBER, Scenario, message};
use crate::search::{holds, is_large};

/// The last waits are all of the same length.
#[test]
fn a_store_that_fails_for_long_breaks_no_promise() {
    let refusals = if is_large() { 9 } else { 5 };
    let scenario = Scenario::new("store_fails_for_long", Month::of(NOVEMBER), vec![message(0)])
        .waiting([0])
        .bound(Bounds { connects: 1, store_refusals: refusals, ..Bounds::default() })
        .seen("the agent is served after all", |_, world| {
            world.left.store_refusals == 0 && world.phase() == Some(PhaseName::Ready)
        });
    holds(&scenario);
}

#[test]
fn a_throttled_store_breaks_no_promise() {
    let refusals = 1 + u8::from(is_large());
    let scenario = Scenario::new("throttling", Month::of(NOVEMBER), (0..2).map(message).collect())
        .waiting([0])
        .free(Freedom { acks_tarry: is_large(), ..Freedom::default() })
        .bound(Bounds { connects: 1, store_refusals: refusals, ..Bounds::default() })
        .seen("an order waits to be given again", |_, world| {
            let mut deadlines =
                world.connections.values().filter_map(|connection| connection.machine.deadline());
            deadlines.any(|(_, wait)| wait == Wait::Retry)
        })
        .seen("a push is refused", |_, world| world.pushes[1] == Push::Over(Outcome::Unavailable));
    holds(&scenario);
}
