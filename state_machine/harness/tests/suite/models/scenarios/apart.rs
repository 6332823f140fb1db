//! Endpoints and nodes are separate processes: requests and answers are lost between them, or
//! another process answers.

use harness::invariants::Promise;
use state_machine::Month;

use crate::models::check::is_caught;
use crate::models::endpoint::Push;
use crate::models::lives::Life;
use crate::models::mutation::Mutation;
use crate::models::scenario::{Bounds, DECEMBER, Freedom, NOVEMBER, Scenario, message};
use crate::search::{holds, is_large, tests};

/// Two endpoints push to an agent that stays connected; the network between them and its node
/// fails.
fn apart() -> Scenario {
    let lost_answers = 1 + u8::from(is_large());
    Scenario::new("endpoints_apart", Month::of(DECEMBER), (0..2).map(message).collect())
        .free(Freedom {
            notifications_travel: true,
            endpoints_apart: true,
            acks_tarry: is_large(),
            answers_travel: is_large(),
            ..Freedom::default()
        })
        .connected(0, NOVEMBER)
        .bound(Bounds { lost_answers, endpoint_crashes: u8::from(is_large()), ..Bounds::default() })
        .seen("a push is not handed over because the one before got no answer", |_, world| {
            !world.shunned.is_empty() && world.pushes[1].next_effect().is_some()
        })
        .seen("a push is taken whose endpoint gave up", |_, world| {
            let has_given_up = |which: &usize| world.pushes[*which].awaited().is_none();
            world.connections.values().any(|connection| connection.mail.iter().any(has_given_up))
        })
        .seen("a message is sent, and stored too", |search, world| {
            let id = search.scenario.messages[0].id;
            let is_sent = world.agent.unacked.iter().any(|(_, unacked)| *unacked == id);
            is_sent && world.is_stored(id)
        })
        .seen("an ack is known to the node alone", |_, world| {
            let is_unknown = |id: &_| {
                let of_it = |push: &&Push| push.is_about(*id);
                let mut pushes = world.pushes.iter().filter(of_it);
                pushes.any(|push| push.awaited().is_none() && !push.has_reply())
            };
            world.agent.acked.iter().any(is_unknown)
        })
        .seen("a notification waits for a node whose breaker is open", |_, world| {
            world.notifications.iter().any(|notification| world.is_shunned(notification.to))
        })
}

/// The agent's node is down and its name is in the record; the agent connects to another node, or
/// reconnects.
fn dead_node() -> Scenario {
    Scenario::new("dead_node", Month::of(DECEMBER), vec![message(0)])
        .node("B", 0)
        .free(Freedom {
            notifications_travel: true,
            endpoints_apart: true,
            nodes_stay_down: true,
            leaves_unnoticed: true,
            ..Freedom::default()
        })
        .connected(0, NOVEMBER)
        .bound(Bounds { connects: 1 + u8::from(is_large()), node_crashes: 1, ..Bounds::default() })
        .seen("a nudge waits for a node that is gone", |_, world| {
            world
                .notifications
                .iter()
                .any(|notification| world.nodes[notification.to].life == Life::Gone)
        })
        .seen("the record names a node that is gone", |search, world| {
            let node = world.record().and_then(|record| record.node.as_ref());
            let node = node.and_then(|node| search.scenario.node_named(node));
            node.is_some_and(|node| world.nodes[node].life == Life::Gone)
        })
}

tests! {
    endpoints_apart_from_their_node_break_no_promise: holds(&apart());
    a_node_that_is_gone_breaks_no_promise: holds(&dead_node());
    an_unsigned_404_that_is_believed_is_noticed:
        is_caught(apart(), Mutation::StrangerSaysNotHere, Promise::FoundWhileConnected);
    an_unsigned_200_that_is_believed_is_noticed:
        is_caught(apart(), Mutation::StrangerSaysAccepted, Promise::AcceptedNeverLost);
    a_nudge_that_is_not_kept_is_noticed:
        is_caught(apart(), Mutation::NudgeOnce, Promise::FoundWhileConnected);
    an_endpoint_that_does_not_look_again_when_a_node_is_gone_is_noticed:
        is_caught(dead_node(), Mutation::NoLookWhenCutOff, Promise::FoundWhileConnected);
    a_nudge_for_the_node_of_the_first_look_is_noticed:
        is_caught(dead_node(), Mutation::NudgeAstray, Promise::FoundWhileConnected);
}
