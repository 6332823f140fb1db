//! Two endpoints push messages of one topic. Their clocks are apart, so that the ids are in either order.

use harness::invariants::Promise;
use state_machine::delivery::Outcome;
use state_machine::{Month, Time};

use crate::models::check::is_caught;
use crate::models::endpoint::Push;
use crate::models::mutation::Mutation;
use crate::models::scenario::{
    APART, Bounds, DECEMBER, Freedom, NOVEMBER, Scenario, message_with_topic,
};
use crate::models::world::World;
use crate::search::{Search, holds, is_large, tests};

/// Pushes 0 and 1; the others are the ids of repetitions. Message 1 has a greater id than message 0.
fn topic(name: &'static str, month: Time) -> Scenario {
    let messages: Vec<_> = (0..4).map(message_with_topic).collect();
    assert!(messages.is_sorted_by_key(|message| message.id));
    Scenario::new(name, Month::of(month), messages)
        .repeated([(0, 2), (1, 3)])
        .free(Freedom { pushes_in_any_order: true, ..Freedom::default() })
        .bound(Bounds { connects: 1, ..Bounds::default() })
        .seen("the later push has the lesser id, and is repeated", |_, world| {
            is_outranked(world, 0) && world.pushes[1] == Push::Over(Outcome::Stored)
        })
}

fn is_outranked(world: &World, which: usize) -> bool {
    matches!(world.pushes[which], Push::Over(Outcome::Outranked(_)))
}

fn waits(search: &Search<Scenario>, world: &World, which: usize) -> bool {
    world.is_stored(search.scenario.messages[which].id)
}

fn topic_in_december() -> Scenario {
    let freedom = Freedom {
        pushes_in_any_order: true,
        acks_tarry: is_large(),
        answers_travel: is_large(),
        ..Freedom::default()
    };
    topic("topic", DECEMBER)
        .free(freedom)
        .seen("the earlier one is acked while the later one waits", |search, world| {
            let earlier = search.scenario.messages[0].id;
            world.agent.acked.contains(&earlier) && waits(search, world, 1)
        })
        .seen("the later one was stored first", |_, world| {
            world.pushes[0].is_waiting() && !world.pushes[1].is_waiting()
        })
}

/// The first push waits in November, by the clock that is ahead. The agent moves it to December, where the other one
/// waits or is about to be stored.
fn topic_in_a_move() -> Scenario {
    topic("topic_in_a_move", NOVEMBER)
        .waiting([1])
        .free(Freedom { acks_tarry: true, ..Freedom::default() })
        .seen(
            "the lesser id waits in the new month, and the greater one in the old",
            |search, world| {
                let [lesser, greater] = [0, 1].map(|which| search.scenario.messages[which].id);
                let rows: Vec<_> = world.store.rows(world.agent.uaid).collect();
                let [old, new] = [NOVEMBER, DECEMBER].map(Month::of);
                rows.contains(&(new, lesser)) && rows.contains(&(old, greater))
            },
        )
}

/// An endpoint whose record is that of the old month stores there while the agent moves.
fn topic_beside_a_move() -> Scenario {
    topic("topic_beside_a_move", NOVEMBER)
        .bound(Bounds { connects: 1 + u8::from(is_large()), ..Bounds::default() })
        .seen("both months have a message", |search, world| {
            waits(search, world, 0) && waits(search, world, 1)
        })
}

fn topic_and_a_crash() -> Scenario {
    let fault = Bounds { connects: 1, endpoint_crashes: 1, ..Bounds::default() };
    topic("topic_and_a_crash", DECEMBER)
        .bound(fault)
        .seen("an endpoint crashes after its push was outranked", |_, world| {
            is_outranked(world, 0) && world.pushes[2] == Push::Vanished
        })
}

/// In the small size the agent connects at the end only.
fn topic_and_a_lost_answer() -> Scenario {
    let connects = u8::from(is_large());
    let fault = Bounds { connects, lost_answers: 1, ..Bounds::default() };
    topic("topic_and_a_lost_answer", DECEMBER).bound(fault).seen(
        "the repetition is stored, and its answer lost",
        |search, world| {
            let failed = world.pushes[2] == Push::Over(Outcome::Unavailable);
            is_outranked(world, 0) && failed && waits(search, world, 2)
        },
    )
}

fn topic_and_a_refusal() -> Scenario {
    let fault = Bounds { connects: 1, store_refusals: 1, ..Bounds::default() };
    topic("topic_and_a_refusal", DECEMBER).bound(fault).seen(
        "the repetition is refused while the other message waits",
        |search, world| {
            let failed = world.pushes[2] == Push::Over(Outcome::Unavailable);
            is_outranked(world, 0) && failed && waits(search, world, 1)
        },
    )
}

/// The agent moves between a node whose clock is ahead and one whose clock is behind.
fn topic_through_nodes_apart() -> Scenario {
    topic("topic_through_nodes_apart", DECEMBER)
        .first_node(APART)
        .node("B", -APART)
        .endpoints([0, 2], -APART)
        .endpoints([1, 3], APART)
        .free(Freedom {
            leaves_unnoticed: is_large(),
            pushes_in_any_order: true,
            ..Freedom::default()
        })
        .bound(Bounds { connects: 1 + u8::from(is_large()), ..Bounds::default() })
        .seen("the repeated push reaches the agent at the node that is behind", |search, world| {
            let repeated = search.scenario.messages[2].id;
            world.node() == Some(1) && world.agent.acked.contains(&repeated)
        })
}

tests! {
    an_endpoint_that_crashes_beside_another_of_its_topic_breaks_no_promise:
        holds(&topic_and_a_crash());
    a_lost_answer_to_a_push_of_a_topic_breaks_no_promise: holds(&topic_and_a_lost_answer());
    a_store_that_refuses_a_push_of_a_topic_breaks_no_promise: holds(&topic_and_a_refusal());
    two_pushes_of_one_topic_reach_an_agent_between_nodes_apart: holds(&topic_through_nodes_apart());
    a_topic_row_that_is_replaced_in_two_writes_is_noticed:
        is_caught(topic_and_a_refusal(), Mutation::TopicReplacedInTwoWrites, Promise::AcceptedNeverLost);
    two_pushes_of_one_topic_keep_every_promise: holds(&topic_in_december());
    a_topic_message_that_is_moved_keeps_every_promise: holds(&topic_in_a_move());
    two_pushes_of_one_topic_beside_a_move_keep_every_promise: holds(&topic_beside_a_move());
    a_later_push_with_a_lesser_id_that_is_dropped_is_noticed:
        is_caught(topic_in_december(), Mutation::LesserTopicDropped, Promise::AcceptedNeverLost);
    a_move_that_keeps_the_greater_id_of_a_topic_is_noticed:
        is_caught(topic_in_a_move(), Mutation::MoveKeepsGreaterTopic, Promise::AcceptedNeverLost);
}
