//! Two endpoints push messages of one topic, whose ids are stored in either order.

use harness::invariants::Promise;
use state_machine::Month;

use crate::models::check::{holds, is_caught};
use crate::models::model::Quarry;
use crate::models::mutation::Mutation;
use crate::models::scenario::{Bounds, DECEMBER, Freedom, Scenario, is_large, message_with_topic};

fn topic() -> Scenario {
    let messages = vec![message_with_topic(0), message_with_topic(1)];
    let ids = [messages[0].id, messages[1].id];
    assert!(ids[0] < ids[1], "the second message is the later one");
    Scenario::new("topic", Month::of(DECEMBER), messages)
        .free(Freedom {
            pushes_in_any_order: true,
            acks_tarry: is_large(),
            answers_travel: is_large(),
            ..Freedom::default()
        })
        .bound(Bounds { connects: 1, ..Bounds::default() })
        .seen("the earlier one is acked while the later one waits", |search, world| {
            let [earlier, later] = [0, 1].map(|which| search.scenario.messages[which].id);
            let waits = world.store.rows(world.agent.uaid).any(|(_, id)| id == later);
            world.agent.acked.contains(&earlier) && waits
        })
        .seen("the later one was stored first", |_, world| {
            world.pushes[0].is_waiting() && !world.pushes[1].is_waiting()
        })
}

#[test]
fn two_pushes_of_one_topic_keep_every_promise() {
    holds(&topic());
}

#[test]
fn a_topic_row_replaced_by_a_lesser_id_is_noticed() {
    let quarry = Quarry::Promise(Promise::AcceptedNeverLost);
    is_caught(&topic().with(Mutation::LesserTopicReplaces), quarry);
}
