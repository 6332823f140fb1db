//! Two connections of one agent: on one node, or on two, of which one has a clock that is behind.

use harness::invariants::Promise;
use state_machine::connection::PhaseName;
use state_machine::delivery::DeliveryEffect;
use state_machine::{Month, Span};

use crate::models::check::{holds, is_caught};
use crate::models::model::Quarry;
use crate::models::mutation::Mutation;
use crate::models::scenario::{Bounds, DECEMBER, Freedom, NOVEMBER, Scenario, is_large, message};
use crate::models::world::World;

fn two_connections() -> Scenario {
    let messages = vec![message(0)];
    let connects = 1 + u8::from(is_large());
    Scenario::new("two_connections", Month::of(DECEMBER), messages)
        .node("B", Span(500))
        .free(Freedom {
            leaves_unnoticed: true,
            acks_come_late: true,
            acks_tarry: true,
            answers_travel: true,
            ..Freedom::default()
        })
        .connected(0, NOVEMBER)
        .bound(Bounds { connects, ..Bounds::default() })
        .seen("both connections live", |_, world| world.lines.len() == 2)
        .seen("what the old connection sent is to be acked on the new one", |_, world| {
            let is_old = |(line, _): &(_, _)| Some(*line) != world.agent.line;
            world.agent.is_greeted && world.agent.unacked.iter().any(is_old)
        })
        .seen("a clear_node is too late", |_, world| clears_too_late(world))
        .seen("the agent is served on its new connection", |_, world| {
            world.left.connects == 0 && world.phase() == Some(PhaseName::Ready)
        })
}

fn clears_too_late(world: &World) -> bool {
    let seen = world.pushes.iter().find_map(|push| match push.next_order() {
        Some(DeliveryEffect::ClearNode { connected_at, .. }) => Some(*connected_at),
        _ => None,
    });
    seen.zip(world.record()).is_some_and(|(seen, record)| seen < record.connected_at)
}

#[test]
fn two_connections_of_one_agent_keep_every_promise() {
    holds(&two_connections());
}

#[test]
fn a_clear_node_without_a_condition_is_noticed() {
    let quarry = Quarry::Promise(Promise::FoundWhileConnected);
    is_caught(&two_connections().with(Mutation::ClearNodeAlways), quarry);
}
