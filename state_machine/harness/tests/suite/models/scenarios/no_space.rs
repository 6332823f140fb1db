//! The disk is full: the store executes no write that it has no space for, and says so.

use harness::invariants::Promise;
use state_machine::connection::{PhaseName, Wait};
use state_machine::delivery::Outcome;
use state_machine::store::StoreOp;
use state_machine::{Month, Span};

use crate::models::check::is_caught;
use crate::models::endpoint::Push;
use crate::models::mutation::Mutation;
use crate::models::scenario::{Bounds, DECEMBER, Freedom, NOVEMBER, Scenario, message};
use crate::models::world::World;
use crate::search::{Search, holds, is_large, tests};

/// A message waits, another one is pushed, and the agent registers a channel.
///
/// Retries are short. The models execute no recheck, and would not see a retry that is due after one.
fn no_space(name: &'static str, month: Month, no_spaces: u8) -> Scenario {
    Scenario::new(name, month, (0..2).map(message).collect())
        .waiting([0])
        .limits(|limits| limits.store_retry = Span(100))
        .bound(Bounds { connects: 1, registers: 1, no_spaces, ..Bounds::default() })
        .seen("a push is refused", |_, world| world.pushes[1] == Push::Over(Outcome::Unavailable))
        .seen("a command is refused", |_, world| {
            let is_open = |operation: &StoreOp| matches!(operation, StoreOp::AddChannels { .. });
            let mut queue = world.nodes.iter().flat_map(|node| &node.queue);
            world.phase() == Some(PhaseName::Ready)
                && world.left.registers == 0
                && world.agent.channels.len() == 1
                && !queue.any(|pending| is_open(&pending.operation))
        })
}

fn is_retried_in(world: &World, phase: PhaseName) -> bool {
    world.connections.values().any(|connection| {
        let wait = connection.machine.deadline().map(|(_, wait)| wait);
        wait == Some(Wait::Retry) && connection.machine.phase() == phase
    })
}

fn is_acked(search: &Search<Scenario>, world: &World) -> bool {
    world.agent.acked.contains(&search.scenario.messages[0].id)
}

#[test]
fn a_full_disk_breaks_no_promise() {
    let scenario = no_space("no_space", Month::of(DECEMBER), 2)
        .free(Freedom { acks_tarry: is_large(), ..Freedom::default() })
        .seen("the delete of an acked message is retried", |search, world| {
            let id = search.scenario.messages[0].id;
            is_acked(search, world) && world.is_stored(id) && is_retried_in(world, PhaseName::Ready)
        });
    holds(&scenario);
}

#[test]
fn a_full_disk_while_the_month_turns_breaks_no_promise() {
    let no_spaces = 1 + u8::from(is_large());
    let scenario = no_space("no_space_while_the_month_turns", Month::of(NOVEMBER), no_spaces)
        .free(Freedom { acks_tarry: is_large(), ..Freedom::default() })
        .seen("the move waits for space", |_, world| is_retried_in(world, PhaseName::CopyingChids))
        .seen("the end of the move waits for space", |_, world| {
            is_retried_in(world, PhaseName::ClearingOldMonth)
        });
    holds(&scenario);
}

/// Acks take longer than the drain, and there is no space for the copies.
#[test]
fn a_full_disk_while_messages_move_breaks_no_promise() {
    let messages = (0..1 + usize::from(is_large())).map(message).collect();
    let scenario = Scenario::new("no_space_while_messages_move", Month::of(NOVEMBER), messages)
        .waiting([0])
        .free(Freedom { acks_tarry: true, ..Freedom::default() })
        .bound(Bounds { connects: 2, hang_ups: 1, no_spaces: 2, ..Bounds::default() })
        .seen("the messages wait for space", |_, world| {
            is_retried_in(world, PhaseName::MovingMessages)
        });
    holds(&scenario);
}

/// The record of the connected agent is in memory only, and the process crashes.
fn unwritten() -> Scenario {
    let no_spaces = 1 + u8::from(is_large());
    let bounds = Bounds { connects: 2, node_crashes: 1, no_spaces, ..Bounds::default() };
    let month = Month::of(if is_large() { NOVEMBER } else { DECEMBER });
    Scenario::new("unwritten_registration", month, (0..2).map(message).collect())
        .waiting([0])
        .bound(bounds)
        .seen("the agent is served with a registration in memory", |_, world| {
            world.unwritten.is_some() && world.agent.is_greeted
        })
        .seen("a crash undoes it", |_, world| {
            let record = world.record().expect("a known agent");
            world.left.node_crashes == 0 && world.left.connects == 1 && record.node.is_none()
        })
}

tests! {
    a_registration_that_is_kept_in_memory_breaks_no_promise: holds(&unwritten());
    an_endpoint_that_takes_a_message_without_space_for_stored_is_noticed:
        is_caught(no_space("no_space", Month::of(DECEMBER), 1), Mutation::NoSpaceIsDone, Promise::AcceptedNeverLost);
    a_delete_without_space_that_counts_as_done_is_noticed:
        is_caught(no_space("no_space", Month::of(DECEMBER), 1), Mutation::NoSpaceIsDone, Promise::NothingLeftBehind);
    a_registration_in_memory_that_no_endpoint_sees_is_noticed:
        is_caught(unwritten(), Mutation::UnwrittenUnseen, Promise::FoundWhileConnected);
}
