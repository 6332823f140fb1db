//! A node drains: its sessions end one by one, and it clears its name from their records.

use harness::invariants::Promise;
use state_machine::Month;
use state_machine::connection::PhaseName;
use state_machine::delivery::DeliveryEffect;

use crate::models::check::is_caught;
use crate::models::lives::Life;
use crate::models::mutation::Mutation;
use crate::models::node::Pending;
use crate::models::scenario::{Bounds, DECEMBER, Freedom, NOVEMBER, Scenario, message};
use crate::models::world::World;
use crate::search::{holds, is_large, tests};

/// The agent is at the node that drains. The store may refuse to clear the node's name from the
/// record.
fn draining(name: &'static str) -> Scenario {
    let messages = (0..1 + usize::from(is_large())).map(message).collect();
    Scenario::new(name, Month::of(DECEMBER), messages)
        .node("B", 0)
        .free(Freedom {
            notifications_travel: true,
            endpoints_apart: true,
            answers_travel: is_large(),
            ..Freedom::default()
        })
        .connected(0, NOVEMBER)
        .bound(Bounds { connects: 1, drains: 1, store_refusals: 1, ..Bounds::default() })
        .seen("a session of a node that drains takes a message", |_, world| {
            let is_draining = world.nodes[0].life == Life::Draining;
            is_draining
                && world
                    .agent
                    .unacked
                    .iter()
                    .any(|(connection, _)| Some(*connection) == world.agent.connection)
        })
        .seen("a node is to clear the record of an agent that is elsewhere", |_, world| {
            has_last_word(world) && world.phase() == Some(PhaseName::Ready)
        })
        .seen("a push is for a node that is gone", |_, world| {
            let is_for_the_gone = |operation: &DeliveryEffect| {
                matches!(operation, DeliveryEffect::Deliver { .. })
                    && world.nodes[0].life == Life::Gone
            };
            world.pushes.iter().filter_map(|push| push.next_effect()).any(is_for_the_gone)
        })
}

/// Whether the store has yet to clear a node that shut down.
fn has_last_word(world: &World) -> bool {
    world.nodes.iter().flat_map(|node| &node.queue).any(Pending::is_last_word)
}

/// A draining node is killed, and restarts before its last write is executed.
fn killed_while_draining() -> Scenario {
    let more = usize::from(is_large());
    let messages = (0..1 + more).map(message).collect();
    Scenario::new("killed_while_draining", Month::of(DECEMBER), messages)
        .free(Freedom { answers_travel: true, endpoints_apart: is_large(), ..Freedom::default() })
        .connected(0, NOVEMBER)
        .bound(Bounds { connects: 1 + more as u8, drains: 1, node_crashes: 1, ..Bounds::default() })
        .seen("the agent is back before its record is to be cleared", |_, world| {
            has_last_word(world) && world.phase() == Some(PhaseName::Ready)
        })
}

tests! {
    a_node_that_drains_breaks_no_promise: holds(&draining("draining"));
    a_node_that_is_killed_while_it_drains_breaks_no_promise: holds(&killed_while_draining());
}

/// The node starts to drain while the old month's messages move to the new one.
#[test]
fn a_node_that_drains_while_the_month_turns_breaks_no_promise() {
    let messages = (0..1 + usize::from(is_large())).map(message).collect();
    let scenario = Scenario::new("draining_while_the_month_turns", Month::of(NOVEMBER), messages)
        .waiting([0])
        .node("B", 0)
        .free(Freedom { notifications_travel: true, ..Freedom::default() })
        .bound(Bounds { connects: 2, drains: 1, ..Bounds::default() })
        .seen("a move was cut short", |_, world| {
            let is_moving = world.record().is_some_and(|record| record.oldmonth.is_some());
            world.agent.connection.is_none() && is_moving
        });
    holds(&scenario);
}

tests! {
    a_node_that_clears_whatever_the_record_says_is_noticed:
        is_caught(draining("draining"), Mutation::ShutdownClearsAlways, Promise::FoundWhileConnected);
    a_node_that_clears_its_name_whenever_it_was_written_is_noticed:
        is_caught(killed_while_draining(), Mutation::ShutdownClearsByName, Promise::FoundWhileConnected);
}
