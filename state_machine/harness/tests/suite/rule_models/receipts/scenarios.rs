//! The worlds in which receipts keep their promises.

use state_machine::store::Stored;
use state_machine::{AckCode, Receipt};
use storage::rules::topics::Replaces;
use storage_reference::Request;

use super::{
    DEADLINE, END, Mutation, Outcome, Promise, ReceiptCall, Receipts, Role, call, expire, feed,
    message,
};
use crate::rule_models::{Process, Scenario};
use crate::search::{by_size, holds, holds_on_walks, is_large, tests};

fn push(number: u8) -> ReceiptCall {
    call(Role::Push(message(number, None)))
}

fn push_topic(number: u8) -> ReceiptCall {
    call(Role::Push(message(number, Some(1))))
}

fn ack(number: u8, code: AckCode) -> ReceiptCall {
    call(Role::Ack(message(number, None), code))
}

type Model = Scenario<Receipts>;

/// An ack comes twice, with another code, while the TTL ends.
fn two_acks() -> Model {
    let codes = [AckCode::Delivered, AckCode::NotHandled];
    let [first, second] = codes.map(|code| ack(1, code));
    let calls = vec![push(1), first, second, expire(DEADLINE)];
    Scenario::new("two_acks", by_size(1, 2), calls).after_the_first(1).seen(
        "the receipt is written, and the row is there",
        |_, world| {
            let is_there = !world.tables.messages.is_empty();
            is_there && world.is_at_rest() && !feed(&world.tables).keys.is_empty()
        },
    )
}

/// The TTL of a message ends and a node publishes, while the message is acked.
fn published() -> Model {
    let calls = vec![push(1), expire(DEADLINE), ack(1, AckCode::Delivered), call(Role::Publish)];
    Scenario::new("published_receipts", by_size(1, 2), calls).after_the_first(1).seen(
        "the ack replaces a receipt that is published",
        |_, world| {
            let feed = feed(&world.tables);
            let is_published = feed.sequence().value.0 == 1;
            is_published && feed.keys.values().any(|row| row.feed_sync_id.is_none())
        },
    )
}

/// Three messages of a topic through as many nodes, which expire.
fn topic_of_three() -> Model {
    let calls = vec![push_topic(1), push_topic(2), push_topic(3), expire(DEADLINE)];
    topic(Scenario::new("topic_of_three", by_size(0, 1), calls))
}

/// The same with failures, while the first message is acked.
fn topic_with_an_ack() -> Model {
    let ack = call(Role::Ack(message(2, Some(1)), AckCode::Delivered));
    let calls = vec![push_topic(2), push_topic(1), push_topic(3), ack];
    topic(Scenario::new("topic_with_an_ack", by_size(1, 2), calls))
}

fn topic(scenario: Model) -> Model {
    scenario
        .after_the_first(1)
        .seen("a message replaces another in two steps", |_, world| {
            world.processes.iter().any(|(_, process)| match process {
                Process::Running(rule) => {
                    matches!(*rule.next, Request::PutMessage(_, Replaces::Message(_)))
                }
                _ => false,
            })
        })
        .seen("a message of the topic is outranked", |_, world| {
            let is_outranked =
                |outcome: &Outcome| matches!(outcome, Outcome::Pushed(Some(Stored::Outranked(_))));
            world.outcomes().any(|(_, outcome)| is_outranked(outcome))
        })
}

/// The sender deletes a message while the agent acks it, and it expires.
fn withdrawn() -> Model {
    let withdraw = call(Role::Withdraw(message(1, None)));
    let calls = vec![push(1), withdraw, ack(1, AckCode::Delivered), expire(DEADLINE)];
    Scenario::new("withdrawn", by_size(1, 2), calls)
        .seen("the message was withdrawn and has no receipt", |_, world| {
            let feed = feed(&world.tables);
            feed.sequence.is_some_and(|sequence| sequence.keys == 0) && feed.keys.is_empty()
        })
        .seen("a withdrawn message was acked", |_, world| {
            !world.ledger.gone.is_empty() && !feed(&world.tables).keys.is_empty()
        })
}

/// Two nodes expire two messages, one of which is acked.
fn two_expire() -> Model {
    let acked = ack(1, AckCode::Delivered);
    let calls = vec![push(1), push(2), expire(DEADLINE), expire(DEADLINE), acked];
    Scenario::new("two_expire", by_size(1, 2), calls).after_the_first(2).seen(
        "one message is delivered, the other has expired",
        |_, world| {
            let feed = feed(&world.tables);
            let receipts = feed.keys.values().filter_map(|row| Receipt::parse(row.value.as_ref()?));
            let receipts: Vec<_> = receipts.collect();
            receipts == [Receipt::Delivered(AckCode::Delivered), Receipt::Expired]
        },
    )
}

/// The subscription ends on two nodes while a message that has expired is acked.
fn ended() -> Model {
    let calls =
        vec![push(1), expire(DEADLINE), ack(1, AckCode::Delivered), expire(END), expire(END)];
    Scenario::new("ended", by_size(1, 2), calls).after_the_first(2).seen(
        "an ack makes the subscription again, which the next search removes",
        |_, world| {
            let feed = feed(&world.tables);
            world.ledger.is_ending && world.is_at_rest() && feed.sequence.is_some()
        },
    )
}

/// Two messages in a subscription that admits one.
fn bound() -> Model {
    let calls = vec![push(8), push(9), ack(8, AckCode::Delivered), expire(DEADLINE)];
    Scenario::new("bound", by_size(1, 2), calls).seen("the subscription is full", |_, world| {
        world.outcomes().any(|(_, outcome)| *outcome == Outcome::Pushed(None))
    })
}

#[test]
fn an_ack_that_comes_twice_leaves_the_first_receipt() {
    holds(&two_acks());
    holds(&published());
}

#[test]
fn messages_of_a_topic_replace_each_other_with_their_receipts() {
    holds(&topic_of_three());
    holds(&topic_with_an_ack());
}

tests! {
    a_withdrawn_message_has_no_receipt_unless_it_is_acked: holds(&withdrawn());
    two_nodes_expire_receipts: holds(&two_expire());
    nothing_is_left_of_a_subscription_that_ends_under_an_ack: holds(&ended());
    a_subscription_keeps_its_bound: holds(&bound());
}

#[test]
fn everything_at_once_keeps_the_promises_of_receipts() {
    let mut calls: Vec<_> = (1..=2).map(push).chain((3..=5).map(push_topic)).collect();
    for number in 1..=2 {
        calls.extend([AckCode::Delivered, AckCode::NotHandled].map(|code| ack(number, code)));
        calls.push(call(Role::Ack(message(number + 2, Some(1)), AckCode::Delivered)));
    }
    calls.push(call(Role::Withdraw(message(1, None))));
    calls.extend([DEADLINE, DEADLINE, END, END].map(expire));
    calls.extend([Role::Publish, Role::Publish].map(call));
    let states = if is_large() { 10_000_000 } else { 40_000 };
    holds_on_walks(&Model::new("wide_receipts", 3, calls), states);
}

#[test]
fn each_seeded_bug_is_noticed() {
    for (scenario, mutation, promise) in [
        (two_acks(), Mutation::RowFirst, Promise::AckedHasItsReceipt),
        (two_acks(), Mutation::NoKeyCondition, Promise::DeliveredStays),
        (two_acks(), Mutation::NoCondition, Promise::ExpiredReplacesNone),
        (withdrawn(), Mutation::NoExpectedCondition, Promise::GoneHasNone),
        (topic_of_three(), Mutation::ReceiptNotCancelled, Promise::GoneHasNone),
        (topic_of_three(), Mutation::AnyOlderReplaced, Promise::GoneHasNone),
        (two_expire(), Mutation::CountedTwice, Promise::EachIsCounted),
        (two_expire(), Mutation::NoneDue, Promise::DecidedInTheEnd),
        (bound(), Mutation::NoBound, Promise::BoundIsKept),
        (ended(), Mutation::SequenceRemovedAnyway, Promise::EndsWithAll),
    ] {
        scenario.notices(mutation, promise);
    }
}
