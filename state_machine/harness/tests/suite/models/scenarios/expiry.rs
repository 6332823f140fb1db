//! Messages whose TTL ends, on nodes whose clocks are ahead and behind.
//!
//! An endpoint writes its time with a message, and a node that reads the message drops it once its own clock shows that
//! time and the TTL. So a message is delivered at least for its TTL, less the time by which the node's clock is ahead of
//! the endpoint's; a node that is behind delivers it for as much longer.

use harness::invariants::Promise;
use state_machine::connection::PhaseName;
use state_machine::{Month, Span};

use crate::models::check::is_caught;
use crate::models::mutation::Mutation;
use crate::models::scenario::{
    APART, Bounds, DECEMBER, Freedom, Scenario, message_for, outlasts_clocks,
};
use crate::models::world::World;
use crate::search::{Search, holds, is_large, tests};

/// The messages, by their indices.
const SHORT: usize = 0;
const OVER: usize = 1;
const FROM_BEHIND: usize = 2;
const FROM_AHEAD: usize = 3;

/// Two nodes, one ahead and one behind. Three messages wait, and another is pushed.
fn expiry() -> Scenario {
    let messages = vec![
        // Expires by the clock that is ahead, and not yet by the one that is behind.
        message_for(SHORT, -APART, 0, Span(800)),
        // Its TTL is over by the clock that accepted it, and not by the one that is behind that.
        message_for(OVER, APART, 1200, Span(900)),
        // These do not expire by any clock, and the latest of them shows that they nearly do.
        message_for(FROM_BEHIND, -APART, 0, Span(1200)),
        message_for(FROM_AHEAD, APART, 0, Span(200)),
    ];
    let lasting: Vec<_> = messages.iter().map(outlasts_clocks).collect();
    assert_eq!(lasting, [false, false, true, true]);
    Scenario::new("expiry", Month::of(DECEMBER), messages)
        .waiting([SHORT, OVER, FROM_AHEAD])
        .first_node(APART)
        .node("B", -APART)
        .endpoints([FROM_BEHIND], -APART)
        .free(Freedom { leaves_unnoticed: is_large(), ..Freedom::default() })
        .bound(Bounds { connects: 1 + u8::from(is_large()), ..Bounds::default() })
        .seen("the node that is ahead drops a message early", |search, world| {
            is_served_at(world, 0) && !was_delivered(search, world, SHORT)
        })
        .seen("the node that is behind delivers it", |search, world| {
            is_served_at(world, 1) && was_delivered(search, world, SHORT)
        })
        .seen("the node that is behind delivers a message late", |search, world| {
            is_served_at(world, 1) && was_delivered(search, world, OVER)
        })
}

fn is_served_at(world: &World, node: usize) -> bool {
    let connection =
        world.agent.connection.and_then(|connection| world.connections.get(&connection));
    world.phase() == Some(PhaseName::Ready)
        && connection.is_some_and(|connection| connection.node == node)
}

fn was_delivered(search: &Search<Scenario>, world: &World, which: usize) -> bool {
    let id = search.scenario.messages[which].id;
    world.agent.acked.contains(&id) || world.agent.unacked.iter().any(|(_, other)| *other == id)
}

tests! {
    a_message_is_not_dropped_before_its_ttl_less_the_difference_of_the_clocks: holds(&expiry());
    a_node_that_drops_messages_earlier_than_its_clock_says_is_noticed:
        is_caught(expiry(), Mutation::ExpiresEarly, Promise::AcceptedNeverLost);
}
