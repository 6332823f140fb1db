//! A new month has begun, and an agent with messages in the old table reconnects.

use harness::invariants::Promise;
use state_machine::connection::PhaseName;
use state_machine::store::StoreOp;
use state_machine::{Month, RouterRecord};

use crate::models::check::is_caught;
use crate::models::mutation::Mutation;
use crate::models::node::Pending;
use crate::models::scenario::{
    APART, Bounds, DECEMBER, Freedom, NOVEMBER, Scenario, message, message_with_topic,
};
use crate::models::world::World;
use crate::search::{holds, is_large, tests};

/// One message is in the old table, others are pushed while the agent moves.
fn month_turns(name: &'static str, from: Month) -> Scenario {
    let messages = (0..2 + usize::from(is_large())).map(message).collect();
    Scenario::new(name, from, messages)
        .waiting([0])
        .seen("the move is finished", |_, world| {
            is_served_in(world, Month::of(DECEMBER)) && !is_moving(world)
        })
        .seen("the record moved, and a message is in the old table", |_, world| {
            let oldmonth = world.record().and_then(|record| record.oldmonth);
            world.store.rows(world.agent.uaid).any(|(month, _)| Some(month) == oldmonth)
        })
}

fn november() -> Month {
    Month::of(NOVEMBER)
}

fn is_moving(world: &World) -> bool {
    world.record().is_some_and(|record| record.oldmonth.is_some())
}

/// The node may crash once, at any step.
fn crashing(scenario: Scenario) -> Scenario {
    scenario
        .bound(Bounds { connects: 2, node_crashes: 1, ..Bounds::default() })
        .seen("a move was cut short", |_, world| world.connections.is_empty() && is_moving(world))
}

tests! {
    a_month_that_turns_with_a_crash_at_every_step_keeps_every_promise:
        holds(&crashing(month_turns("month_turns_with_a_crash", november())));
    an_agent_two_months_behind_is_promised_the_same:
        holds(&crashing(month_turns("two_months_behind", november().previous())));
}

#[test]
fn a_month_that_turns_with_a_hang_up_at_every_step_keeps_every_promise() {
    let bounds = Bounds { connects: 2, hang_ups: 1, ..Bounds::default() };
    let scenario = month_turns("month_turns_with_a_hang_up", november()).bound(bounds);
    holds(&scenario.seen("a move was cut short", |_, world| {
        world.agent.connection.is_none() && is_moving(world)
    }));
}

#[test]
fn an_endpoint_that_crashes_while_the_month_turns_breaks_no_promise() {
    let bounds = Bounds { connects: 1, endpoint_crashes: 1, ..Bounds::default() };
    holds(&month_turns("month_turns_with_a_crashed_endpoint", november()).bound(bounds));
}

/// An earlier connection wrote the record and ended before it drained the old table; another month
/// has begun since.
#[test]
fn an_unfinished_move_of_a_month_ago_is_finished_first() {
    let mut scenario = month_turns("unfinished_move_of_a_month_ago", november().previous());
    scenario.start.store.execute(&StoreOp::AddChannels {
        uaid: scenario.start.agent.uaid,
        month: november(),
        channels: scenario.start.agent.channels.clone(),
    });
    for record in scenario.start.store.records.values_mut() {
        (record.curmonth, record.oldmonth) = (november(), Some(november().previous()));
    }
    holds(&crashing(scenario));
}

/// Acks take longer than the drain: the remaining messages are moved.
#[test]
fn a_silent_agent_takes_its_messages_along() {
    let crashes = u8::from(is_large());
    let bounds = Bounds { connects: 1 + crashes, node_crashes: crashes, ..Bounds::default() };
    let scenario = Scenario::new("silent_agent", november(), (0..2).map(message).collect())
        .waiting([0])
        .free(Freedom { acks_tarry: true, ..Freedom::default() })
        .bound(bounds)
        .seen("a message was carried over unacked", |search, world| {
            let carried = (Month::of(DECEMBER), search.scenario.messages[0].id);
            world.store.rows(world.agent.uaid).any(|row| row == carried)
        });
    holds(&scenario);
}

#[test]
fn commands_wait_for_the_end_of_the_move() {
    let hang_ups = u8::from(is_large());
    let bounds = Bounds { connects: 1 + hang_ups, hang_ups, registers: 1, ..Bounds::default() };
    let scenario = month_turns("commands_while_the_month_turns", november())
        .bound(bounds)
        .seen("a command waits", |_, world| {
            let is_early = world.phase().is_some_and(|phase| phase != PhaseName::Ready);
            world.left.registers == 0 && world.agent.is_greeted && is_early
        })
        .seen("a command was carried out", |_, world| world.agent.channels.len() == 2);
    holds(&scenario);
}

/// The connection that the agent abandoned on the other node serves the old month until it is
/// notified.
#[test]
fn an_old_connection_that_lingers_breaks_no_promise() {
    let scenario = Scenario::new("old_connection_lingers", november(), vec![message(0)])
        .node("B", 0)
        .free(Freedom {
            leaves_unnoticed: true,
            acks_come_late: true,
            answers_travel: is_large(),
            acks_tarry: is_large(),
            ..Freedom::default()
        })
        .connected(0, NOVEMBER)
        .bound(Bounds { connects: 1, ..Bounds::default() })
        .seen("the old connection is ready while the new one moves", |_, world| {
            let is_ready = |phase| phase == PhaseName::Ready;
            let old =
                world.connections.values().any(|connection| is_ready(connection.machine.phase()));
            old && world.phase() == Some(PhaseName::WritingRecord)
        });
    holds(&scenario);
}

/// A node that the agent has left moves its messages, while another node serves the agent.
#[test]
fn an_agent_that_wanders_takes_its_messages_along() {
    let freedom = Freedom { acks_tarry: true, leaves_unnoticed: true, ..Freedom::default() };
    let scenario = Scenario::new("wandering_agent", november(), vec![message(0)])
        .waiting([0])
        .node("B", 0)
        .free(Freedom { acks_come_late: is_large(), ..freedom })
        .bound(Bounds { connects: 2, ..Bounds::default() })
        .seen("a node is to carry messages of an agent that left it", |_, world| {
            let is_carry = |pending: &Pending| {
                let is_carry = matches!(pending.operation, StoreOp::MoveMessages { .. });
                is_carry && Some(pending.connection) != world.agent.connection
            };
            world.nodes.iter().any(|node| node.queue.iter().any(is_carry))
        });
    holds(&scenario);
}

/// One node is in December, the other one not yet. A record never moves back.
fn clocks_that_differ() -> Scenario {
    let messages = (0..1 + usize::from(is_large())).map(message).collect();
    Scenario::new("clocks_that_differ", november(), messages)
        .waiting([0])
        .node("B", -APART)
        .free(Freedom { leaves_unnoticed: true, ..Freedom::default() })
        .bound(Bounds { connects: 2, ..Bounds::default() })
        .seen("the agent is served in November", |_, world| is_served_in(world, november()))
        .seen("the agent is served in December where it is November still", |_, world| {
            world.node() == Some(1) && is_served_in(world, Month::of(DECEMBER))
        })
}

#[test]
fn clocks_that_differ_break_no_promise() {
    holds(&clocks_that_differ());
}

/// The same with a topic: its message waits in November, and the later one is pushed through an endpoint that is in
/// November too, by a clock that is behind.
fn topic_on_clocks_that_differ() -> Scenario {
    let messages: Vec<_> = (0..3).map(message_with_topic).collect();
    assert!(messages.is_sorted_by_key(|message| message.id));
    Scenario::new("topic_on_clocks_that_differ", november(), messages)
        .repeated([(0, 2)])
        .endpoints([0, 2], -APART)
        .waiting([1])
        .node("B", -APART)
        .free(Freedom { leaves_unnoticed: is_large(), ..Freedom::default() })
        .bound(Bounds { connects: 2, hang_ups: 1, ..Bounds::default() })
        .seen("an endpoint that is in November repeats a push, and stores it in December", {
            |search, world| {
                let repeated = (Month::of(DECEMBER), search.scenario.messages[2].id);
                world.store.rows(world.agent.uaid).any(|row| row == repeated)
            }
        })
        .seen("the agent is served in December where it is November still", |_, world| {
            world.node() == Some(1) && is_served_in(world, Month::of(DECEMBER))
        })
}

tests! {
    a_topic_on_clocks_that_differ_keeps_every_promise: holds(&topic_on_clocks_that_differ());
    a_record_that_follows_a_clock_that_is_behind_is_noticed:
        is_caught(topic_on_clocks_that_differ(), Mutation::RecordFollowsClock, Promise::FoundWhileConnected);
}

fn is_served_in(world: &World, month: Month) -> bool {
    let is_in = |record: &RouterRecord| record.curmonth == month;
    world.phase() == Some(PhaseName::Ready) && world.record().is_some_and(is_in)
}

fn is_noticed(mutation: Mutation, promise: Promise) {
    let scenario = crashing(month_turns("month_turns_with_a_crash", november()));
    is_caught(scenario, mutation, promise);
}

tests! {
    an_endpoint_without_a_second_look_is_noticed:
        is_noticed(Mutation::NoSecondLook, Promise::AcceptedNeverLost);
    a_record_without_oldmonth_is_noticed:
        is_noticed(Mutation::NoOldMonth, Promise::AcceptedNeverLost);
    a_record_that_moves_before_its_channels_is_noticed:
        is_noticed(Mutation::RouterBeforeCopy, Promise::SubscriptionKept);
    a_move_without_a_last_look_at_the_old_table_is_noticed:
        is_noticed(Mutation::NoLastLook, Promise::AcceptedNeverLost);
    a_move_that_is_never_noted_as_finished_is_noticed:
        is_noticed(Mutation::MoveNeverFinished, Promise::NothingLeftBehind);
    a_move_that_can_never_be_finished_is_noticed:
        is_noticed(Mutation::MoveRefused, Promise::ComesToRest);
}
