//! Two connections of one agent: on one node, or on two, of which one has a clock that is behind.

use harness::invariants::Promise;
use state_machine::Month;
use state_machine::connection::PhaseName;
use state_machine::delivery::DeliveryEffect;

use crate::models::check::is_caught;
use crate::models::mutation::Mutation;
use crate::models::scenario::{APART, Bounds, DECEMBER, Freedom, NOVEMBER, Scenario, message};
use crate::models::world::World;
use crate::search::{holds, is_large, tests};

fn two_connections() -> Scenario {
    let messages = vec![message(0)];
    let connects = 1 + u8::from(is_large());
    Scenario::new("two_connections", Month::of(DECEMBER), messages)
        .node("B", -APART)
        .free(Freedom {
            leaves_unnoticed: true,
            acks_come_late: true,
            acks_tarry: true,
            answers_travel: true,
            ..Freedom::default()
        })
        .connected(0, NOVEMBER)
        .bound(Bounds { connects, ..Bounds::default() })
        .seen("both connections live", |_, world| world.connections.len() == 2)
        .seen("what the old connection sent is to be acked on the new one", |_, world| {
            let is_old = |(connection, _): &(_, _)| Some(*connection) != world.agent.connection;
            world.agent.is_greeted && world.agent.unacked.iter().any(is_old)
        })
        .seen("a clear_node is too late", |_, world| clears_too_late(world))
        .seen("the agent is served on its new connection", |_, world| {
            world.left.connects == 0 && world.phase() == Some(PhaseName::Ready)
        })
}

fn clears_too_late(world: &World) -> bool {
    let seen = world.pushes.iter().find_map(|push| match push.next_effect() {
        Some(DeliveryEffect::ClearNode { connected_at, .. }) => Some(*connected_at),
        _ => None,
    });
    seen.zip(world.record()).is_some_and(|(seen, record)| seen < record.connected_at)
}

/// The agent moves between nodes whose clocks are right, ahead and behind, in any order.
fn three_clocks() -> Scenario {
    let messages = usize::from(is_large());
    Scenario::new("three_clocks", Month::of(DECEMBER), (0..messages).map(message).collect())
        .node("B", APART)
        .node("C", -APART)
        .free(Freedom { leaves_unnoticed: true, notifications_travel: true, ..Freedom::default() })
        .connected(0, NOVEMBER)
        .bound(Bounds { connects: 2, ..Bounds::default() })
        .seen("a node registers with a time that its clock has not reached", |search, world| {
            let behind = search.scenario.clock(2, world.now);
            world.record().is_some_and(|record| {
                let node = record.node.as_ref().and_then(|node| search.scenario.node_named(node));
                node == Some(2) && record.connected_at > behind
            })
        })
        .seen("the agent is served by the node that is ahead", |_, world| {
            world.phase() == Some(PhaseName::Ready) && world.node() == Some(1)
        })
}

tests! {
    connections_to_nodes_whose_clocks_are_apart_keep_every_promise: holds(&three_clocks());
    a_notification_with_the_time_of_its_nodes_clock_is_noticed:
        is_caught(three_clocks(), Mutation::NoticeByClock, Promise::ComesToRest);
    two_connections_of_one_agent_keep_every_promise: holds(&two_connections());
    a_clear_node_without_a_condition_is_noticed:
        is_caught(two_connections(), Mutation::ClearNodeAlways, Promise::FoundWhileConnected);
}
