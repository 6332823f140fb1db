//! The ack arrives after the endpoint stopped waiting for it and before the endpoint stored the
//! message.

use harness::invariants::{Invariant, Promise};
use state_machine::Month;

use crate::models::check::is_caught;
use crate::models::mutation::Mutation;
use crate::models::scenario::{Bounds, DECEMBER, Freedom, Scenario, message};
use crate::search::{holds, is_large, tests};

/// One message is stored before the agent connects, another is pushed meanwhile.
fn late_ack() -> Scenario {
    let messages = (0..2 + usize::from(is_large())).map(message).collect();
    Scenario::new("late_ack", Month::of(DECEMBER), messages)
        .waiting([0])
        .free(Freedom { acks_tarry: true, answers_travel: true, ..Freedom::default() })
        .bound(Bounds { connects: 1, ..Bounds::default() })
        .seen("a message was acked and will be stored", |_, world| {
            let is_acked = |id: &_| world.pushes.iter().any(|push| push.is_about(*id));
            world.agent.acked.iter().any(is_acked)
        })
        .seen("an ack is settled", |search, world| {
            search.scenario.messages.iter().any(|message| world.ledger.is_settled(message.id))
        })
        .seen("a row shows up that was acked", |_, world| {
            let mut rows = world.store.rows(world.agent.uaid);
            rows.any(|(_, id)| world.agent.acked.contains(&id))
        })
}

tests! {
    an_ack_before_the_store_breaks_no_promise: holds(&late_ack());
    acks_that_are_not_remembered_are_noticed:
        is_caught(late_ack(), Mutation::AcksForgotten, Invariant::AckedNeverSent);
    a_store_that_deletes_nothing_is_noticed:
        is_caught(late_ack(), Mutation::DeletesNothing, Promise::AckedNeverAgain);
}
