//! The worlds in which records keep their promises.

use state_machine::Time;
use storage::record_row::RecordRow;

use super::{Mutation, Outcome, Promise, Records, Role, UAID, last_connect, month};
use crate::rule_models::Scenario;
use crate::search::{by_size, holds, holds_on_walks, is_large, tests};

type Model = Scenario<Records>;

fn connect(node: &'static str, at: u64, month: u8) -> Role {
    Role::Connect { node, at, month }
}

fn bridge(at: u64, token: &'static str, month: u8) -> Role {
    Role::Bridge { at, token, month }
}

/// An agent connects to two nodes, whose clocks are a month apart, and both move it.
fn two_nodes() -> Model {
    let mut calls = vec![connect("a", 1, 10), connect("a", 2, 11), connect("b", 3, 12)];
    calls.push(Role::Clear { node: "b", at: 3 });
    Scenario::new("two_nodes", by_size(1, 2), calls)
        .seen("a connection ends the move of another one", |_, world| {
            let there = world.tables.records.get(&UAID);
            there.is_some_and(|there| {
                there.connected_at == Time(3) && there.oldmonth == Some(month(10))
            })
        })
        .seen("the agent is moved through two months", |_, world| {
            let there = world.tables.records.get(&UAID);
            let is_there = |there: &RecordRow| there.curmonth == Some(month(12));
            let has_moved = there.is_some_and(|there| is_there(there) && there.oldmonth.is_none());
            let is_done = |(_, outcome): &(&Role, &Outcome)| **outcome == Outcome::Done;
            has_moved && world.outcomes().filter(is_done).count() == 3
        })
        .seen("a connection is superseded", |_, world| {
            world.outcomes().any(|(_, outcome)| *outcome == Outcome::Superseded)
        })
}

/// A bridge registers an agent again, while three nodes move it and the old token is reported.
fn bridged() -> Model {
    let moves = [11, 12].map(|month| Role::Move { month });
    let mut calls = vec![bridge(1, "t", 10), bridge(2, "u", 11), Role::Unregister { token: "t" }];
    calls.extend(moves);
    Scenario::new("bridged", by_size(1, 2), calls)
        .after_the_first(1)
        .seen("the report of a token that is not in use any more changes nothing", |_, world| {
            let is_refused = |(call, outcome): (&Role, &Outcome)| {
                matches!(call, Role::Unregister { .. }) && *outcome == Outcome::Refused
            };
            world.outcomes().any(is_refused)
        })
        .seen("one of two moves from a month is refused", |_, world| {
            let is_refused = |(call, outcome): (&Role, &Outcome)| {
                matches!(call, Role::Move { .. }) && *outcome == Outcome::Refused
            };
            world.outcomes().any(is_refused)
        })
}

/// A user is dropped by two processes while it connects.
fn dropped() -> Model {
    let drop = Role::Drop { seen: last_connect(1) };
    let calls = vec![connect("a", 1, 10), drop.clone(), drop, connect("b", 2, 11)];
    Scenario::new("dropped", by_size(1, 2), calls)
        .after_the_first(1)
        .seen("an agent that is being dropped is unknown", |_, world| {
            world.outcomes().any(|(_, outcome)| *outcome == Outcome::Unknown)
        })
        .seen("a user who has reconnected stays", |_, world| {
            let is_refused = |(call, outcome): (&Role, &Outcome)| {
                matches!(call, Role::Drop { .. }) && *outcome == Outcome::Refused
            };
            world.outcomes().any(is_refused)
        })
}

/// A user whose first registration is executed twice is dropped in between, by two processes.
fn made_again() -> Model {
    let drop = Role::Drop { seen: last_connect(1) };
    let calls = vec![connect("a", 1, 10), drop.clone(), drop, connect("a", 1, 10)];
    Scenario::new("made_again", by_size(1, 2), calls).seen("a record is made again", |_, world| {
        let is_done = |(_, outcome): &(&Role, &Outcome)| **outcome == Outcome::Done;
        world.tables.records.contains_key(&UAID) && world.outcomes().filter(is_done).count() > 2
    })
}

/// An agent over a WebSocket and one behind a bridge have the same id.
fn kinds() -> Model {
    let calls = vec![connect("a", 1, 10), bridge(2, "t", 11), Role::Move { month: 11 }];
    Scenario::new("kinds", by_size(2, 3), calls).seen("one of them is unknown", |_, world| {
        world.outcomes().any(|(_, outcome)| *outcome == Outcome::Unknown)
    })
}

tests! {
    two_nodes_move_the_agent_of_the_latest_connection: holds(&two_nodes());
    an_agent_behind_a_bridge_is_moved_by_any_node_once: holds(&bridged());
    a_user_who_reconnects_is_not_dropped: holds(&dropped());
    a_user_who_is_made_again_while_it_is_dropped_stays: holds(&made_again());
    a_record_stays_of_its_kind: holds(&kinds());
}

#[test]
fn everything_at_once_keeps_the_promises_of_records() {
    let mut calls = vec![connect("a", 1, 10), connect("b", 2, 12), connect("a", 3, 11)];
    calls.extend([bridge(4, "t", 11), bridge(5, "u", 12), connect("b", 6, 12)]);
    calls.extend([1, 3, 5].map(|at| Role::Drop { seen: last_connect(at) }));
    calls.extend([Role::Move { month: 12 }, Role::Unregister { token: "u" }]);
    let states = if is_large() { 10_000_000 } else { 40_000 };
    holds_on_walks(&Model::new("wide_records", 3, calls), states);
}

#[test]
fn each_condition_of_a_change_is_missed() {
    for (mutation, promise) in [
        (Mutation::AnyNode, Promise::RecordsAsPromised),
        (Mutation::AnyConnection, Promise::RecordsAsPromised),
        (Mutation::OlderRegisters, Promise::LatestStays),
        (Mutation::MonthOfNode, Promise::MonthsAreRemembered),
        (Mutation::MoveRefused, Promise::RecordsAsPromised),
        (Mutation::NoSecondLook, Promise::AnswersAreTrue),
    ] {
        two_nodes().notices(mutation, promise);
    }
    bridged().notices(Mutation::AnyMonth, Promise::RecordsAsPromised);
    bridged().notices(Mutation::AnyMove, Promise::MonthsAreRemembered);
    dropped().notices(Mutation::AnyLastConnect, Promise::ReconnectedStay);
    dropped().notices(Mutation::DroppedRegisters, Promise::RecordsAsPromised);
    made_again().notices(Mutation::AnyRecord, Promise::ReconnectedStay);
}
