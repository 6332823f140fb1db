//! More messages with the same time than a page holds.

use harness::invariants::Promise;
use state_machine::Month;

use crate::models::check::{holds, is_caught};
use crate::models::model::Quarry;
use crate::models::mutation::Mutation;
use crate::models::scenario::{Bounds, NOVEMBER, Scenario, is_large, message};

fn pages() -> Scenario {
    let rows = 3;
    let pushes = usize::from(is_large());
    let messages = (0..rows + pushes).map(message).collect();
    Scenario::new("pages", Month::of(NOVEMBER), messages)
        .waiting(0..rows)
        .limits(|limits| limits.fetch_rows_max = 1)
        .bound(Bounds { connects: 1, ..Bounds::default() })
        .seen("a page was followed by another", |_, world| world.agent.unacked.len() > 1)
}

#[test]
fn messages_of_one_instant_are_delivered_page_by_page() {
    holds(&pages());
}

#[test]
fn a_cursor_by_timestamp_is_noticed() {
    let quarry = Quarry::Promise(Promise::AcceptedNeverLost);
    is_caught(&pages().with(Mutation::CursorByTimestamp), quarry);
}
