//! Lost answers of the store, after it executed the operation, and of a node; and lost
//! notifications.

use state_machine::Month;
use state_machine::delivery::Outcome;

use crate::models::endpoint::Push;
use crate::models::scenario::{Bounds, DECEMBER, Freedom, NOVEMBER, Scenario, message};
use crate::search::{holds, is_large};

fn bounds() -> Bounds {
    Bounds { connects: 1, lost_answers: 1 + u8::from(is_large()), ..Bounds::default() }
}

#[test]
fn lost_answers_break_no_promise() {
    let messages = (0..2).map(message).collect();
    let scenario = Scenario::new("lost_answers", Month::of(DECEMBER), messages)
        .waiting([0])
        .free(Freedom { acks_tarry: true, answers_travel: is_large(), ..Freedom::default() })
        .bound(bounds())
        .seen("a push is refused although it was stored", |search, world| {
            world.pushes[1] == Push::Over(Outcome::Unavailable)
                && world.is_stored(search.scenario.messages[1].id)
        })
        .seen("a nudge is lost", |_, world| world.is_nudge_lost);
    holds(&scenario);
}

#[test]
fn lost_answers_while_the_month_turns_break_no_promise() {
    let scenario = Scenario::new(
        "lost_answers_while_the_month_turns",
        Month::of(NOVEMBER),
        (0..2).map(message).collect(),
    );
    holds(&scenario.waiting([0]).bound(bounds()));
}

/// Acks take so long that messages are moved, and a move may fail after half of its work.
#[test]
fn lost_answers_while_messages_are_carried_over_break_no_promise() {
    let messages = (0..1 + usize::from(is_large())).map(message).collect();
    let scenario = Scenario::new("lost_answers_while_carrying", Month::of(NOVEMBER), messages)
        .waiting([0])
        .free(Freedom { acks_tarry: true, ..Freedom::default() })
        .bound(Bounds { connects: 2, node_crashes: 1, lost_answers: 1, ..Bounds::default() })
        .seen("a message is in both tables", |search, world| {
            let is_it = |(_, id): &(Month, _)| *id == search.scenario.messages[0].id;
            world.store.rows(world.agent.uaid).filter(is_it).count() == 2
        });
    holds(&scenario);
}
