//! An agent moves from one node to another and back, and the notification that it is elsewhere is
//! late or lost.

use harness::invariants::Promise;
use state_machine::Month;
use state_machine::connection::PhaseName;

use crate::models::check::is_caught;
use crate::models::mutation::Mutation;
use crate::models::scenario::{
    APART, Ahead, Bounds, DECEMBER, Freedom, NOVEMBER, Scenario, message,
};
use crate::models::world::World;
use crate::search::{holds, is_large, tests};

/// The agent is at the first node, and may move to the other one and back.
fn there_and_back(name: &'static str, messages: usize, ahead: Ahead) -> Scenario {
    let messages = (0..messages).map(message).collect();
    Scenario::new(name, Month::of(DECEMBER), messages)
        .node("B", ahead)
        .free(Freedom {
            leaves_unnoticed: true,
            notifications_travel: true,
            answers_travel: is_large(),
            acks_come_late: is_large(),
            ..Freedom::default()
        })
        .seen("a connection is to hear that its agent is elsewhere", |_, world| {
            is_notified(world, false)
        })
}

/// Whether a notification is about to reach an abandoned connection, or the one that serves the
/// agent.
fn is_notified(world: &World, is_served: bool) -> bool {
    let is_ready = world.phase() == Some(PhaseName::Ready);
    world.connections.iter().any(|(id, connection)| {
        connection.elsewhere.is_some()
            && (world.agent.connection == Some(*id)) == is_served
            && is_ready
    })
}

fn late_notification() -> Scenario {
    there_and_back("late_notification", 1, 0)
        .connected(0, NOVEMBER)
        .bound(Bounds { connects: 2, ..Bounds::default() })
        .seen("the agent reconnected before its node was notified", |_, world| {
            is_notified(world, true)
        })
}

#[test]
fn a_late_notification_closes_no_newer_connection() {
    holds(&late_notification());
}

#[test]
fn a_lost_notification_breaks_no_promise() {
    let scenario = there_and_back("lost_notification", 1, 0)
        .connected(0, NOVEMBER)
        .bound(Bounds { connects: 1, lost_answers: 1, ..Bounds::default() })
        .seen("the old connection lingers", |_, world| {
            let is_notified = world.notifications.is_empty() && world.is_unnotified;
            is_notified && world.connections.len() == 2 && world.phase() == Some(PhaseName::Ready)
        });
    holds(&scenario);
}

/// The agent reconnects to a node whose clock is behind that of its previous node.
fn notification_from_a_clock_ahead() -> Scenario {
    let messages = usize::from(is_large());
    there_and_back("notification_from_a_clock_ahead", messages, -APART)
        .connected(1, NOVEMBER)
        .bound(Bounds { connects: 2, ..Bounds::default() })
        .seen("the agent reconnected before its node was notified", |_, world| {
            is_notified(world, true)
        })
}

tests! {
    a_notification_of_a_node_whose_clock_is_ahead_closes_no_newer_connection:
        holds(&notification_from_a_clock_ahead());
    a_record_in_the_future_that_is_repaired_beside_nodes_is_noticed:
        is_caught(notification_from_a_clock_ahead(), Mutation::RepairedBesideNodes, Promise::FoundWhileConnected);
    an_old_notification_that_is_believed_is_noticed:
        is_caught(late_notification(), Mutation::StampsNotCompared, Promise::FoundWhileConnected);
    a_notification_of_the_wrong_node_is_noticed:
        is_caught(late_notification(), Mutation::TellsItself, Promise::ComesToRest);
}
