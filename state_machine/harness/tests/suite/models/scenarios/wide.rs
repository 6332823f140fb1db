//! All disorder at once: too large for a search, so the checker walks at random.

use state_machine::Month;
use state_machine::connection::PhaseName;

use crate::models::scenario::{
    APART, Bounds, DECEMBER, Freedom, NOVEMBER, Scenario, message, message_with_topic,
};
use crate::search::{holds_on_walks, is_large, tests};

fn wide(name: &'static str, month: Month) -> Scenario {
    let topics = [1, 2].map(message_with_topic);
    let [first, fourth, fifth] = [0, 3, 4].map(message);
    let [second, third] = topics;
    Scenario::new(name, month, vec![first, second, third, fourth, fifth])
        .waiting([0])
        .first_node(APART)
        .node("B", -APART)
        .endpoints([2], -APART)
        .free(Freedom {
            answers_travel: true,
            acks_tarry: true,
            leaves_unnoticed: true,
            acks_come_late: true,
            pushes_in_any_order: true,
            notifications_travel: true,
            endpoints_apart: true,
            nodes_stay_down: true,
        })
        .bound(Bounds {
            connects: 4,
            hang_ups: 1,
            registers: 1,
            node_crashes: 2,
            drains: 1,
            endpoint_crashes: 1,
            store_refusals: 2,
            no_spaces: 2,
            lost_answers: 2,
            urgencies: 1,
            ..Bounds::default()
        })
        .seen("the agent is served", |_, world| world.phase() == Some(PhaseName::Ready))
}

fn states() -> usize {
    if is_large() { 10_000_000 } else { 60_000 }
}

tests! {
    walks_through_everything_at_once_break_no_promise:
        holds_on_walks(&wide("wide", Month::of(DECEMBER)), states());
    walks_through_everything_while_the_month_turns_break_no_promise:
        holds_on_walks(&wide("wide_while_the_month_turns", Month::of(NOVEMBER)), states());
}
