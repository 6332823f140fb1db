//! The store is throttled: it rejects operations without executing them, and the machine repeats
//! each at its deadline.

use state_machine::Month;
use state_machine::connection::Wait;
use state_machine::delivery::Outcome;

use crate::models::check::holds;
use crate::models::endpoint::Push;
use crate::models::scenario::{Bounds, Freedom, NOVEMBER, Scenario, is_large, message};

#[test]
fn a_throttled_store_breaks_no_promise() {
    let refusals = 1 + u8::from(is_large());
    let scenario = Scenario::new("throttling", Month::of(NOVEMBER), (0..2).map(message).collect())
        .waiting([0])
        .free(Freedom { acks_tarry: is_large(), ..Freedom::default() })
        .bound(Bounds { connects: 1, store_refusals: refusals, ..Bounds::default() })
        .seen("an order waits to be given again", |_, world| {
            let mut deadlines = world.lines.values().filter_map(|line| line.connection.deadline());
            deadlines.any(|(_, wait)| wait == Wait::Retry)
        })
        .seen("a push is refused", |_, world| world.pushes[1] == Push::Over(Outcome::Unavailable));
    holds(&scenario);
}
