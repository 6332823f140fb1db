//! As many messages wait as may: further pushes are refused, and accepted ones are never lost.

use state_machine::Month;
use state_machine::delivery::Outcome;
use state_machine::store::FullScope;

use crate::models::endpoint::Push;
use crate::models::scenario::{Bounds, DECEMBER, Freedom, NOVEMBER, Scenario, message};
use crate::search::holds;

const REFUSED: Push = Push::Over(Outcome::Full(FullScope::User));

/// One message waits, and no further one may.
fn full(name: &'static str, month: Month, messages: usize) -> Scenario {
    Scenario::new(name, month, (0..messages).map(message).collect())
        .waiting([0])
        .waiting_max(1)
        .seen("a push is refused", |_, world| world.pushes[1] == REFUSED)
        .seen("a later push is accepted", |_, world| {
            world.pushes[1] == Push::Over(Outcome::Stored)
                || world.pushes[1] == Push::Over(Outcome::Delivered)
        })
}

#[test]
fn a_full_table_breaks_no_promise() {
    let scenario = full("full", Month::of(DECEMBER), 2)
        .free(Freedom { acks_tarry: true, ..Freedom::default() })
        .bound(Bounds { connects: 2, hang_ups: 1, ..Bounds::default() });
    holds(&scenario);
}

#[test]
fn a_move_to_a_full_table_loses_no_message() {
    let scenario = full("move_to_a_full_table", Month::of(NOVEMBER), 2)
        .free(Freedom { acks_tarry: true, ..Freedom::default() })
        .bound(Bounds { connects: 1, ..Bounds::default() })
        .seen("more messages wait in the new month than may", |_, world| {
            let rows = world.store.rows(world.agent.uaid);
            rows.filter(|(month, _)| *month == Month::of(DECEMBER)).count() > 1
        });
    holds(&scenario);
}
