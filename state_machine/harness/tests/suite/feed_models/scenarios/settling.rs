//! A store such as DynamoDB, whose readers may see a publication in part: they read only up to the
//! settled number.

use crate::feed_models::promises::Promise;
use storage_reference::Request;

use crate::feed_models::check::is_caught;
use crate::feed_models::mutation::Mutation;
use crate::feed_models::rule::Rule;
use crate::feed_models::scenario::{Bounds, Scenario};
use crate::search::{by_size, holds, tests};

/// Two keys are published together, and one is visible before the other.
fn settling() -> Scenario {
    Scenario::new("settling", 2, 1)
        .seen_in_part()
        .batch(2)
        .published(&[0])
        .follower(0)
        .followed()
        .bound(Bounds {
            writes: by_size(2, 3),
            polls: 1,
            refusals: by_size(0, 1),
            ..Bounds::default()
        })
        .seen("a page is asked for while a publication is seen in part", |_, world| {
            let running = world.followers[0].running.as_ref();
            let is_fetching = running.is_some_and(|running| running.fetch.is_some());
            is_fetching && world.store.feed().hidden.len() == 1
        })
}

/// A publisher crashes before it settles its publication, and another one publishes.
fn left_unsettled() -> Scenario {
    Scenario::new("left_unsettled", by_size(1, 2), by_size(1, 2))
        .seen_in_part()
        .published(&[0])
        .follower(0)
        .followed()
        .bound(Bounds { writes: 2, node_crashes: 1, ..Bounds::default() })
        .seen("a publisher waits until what another left is whole", |_, world| {
            let is_waiting = |rule: &Rule| matches!(*rule.next, Request::Settle(..));
            !world.store.feed().hidden.is_empty() && world.rules().any(is_waiting)
        })
}

/// One publisher is slow to settle; the other settles for it and publishes.
fn two_settle() -> Scenario {
    Scenario::new("two_settle", by_size(1, 2), 2)
        .seen_in_part()
        .published(&[0])
        .follower(1)
        .followed()
        .bound(Bounds { writes: 2, polls: by_size(0, 1), ..Bounds::default() })
        .seen("one settles what another has settled before, and published on top of", |_, world| {
            world.rules().any(|rule| match &*rule.next {
                Request::Settle(_, sequence) => world.store.feed().settled > sequence.value,
                _ => false,
            })
        })
}

tests! {
    a_publication_that_is_seen_in_part_is_read_as_a_whole: holds(&settling());
    what_a_publisher_left_unsettled_is_settled_by_the_next: holds(&left_unsettled());
    two_that_settle_do_not_disturb_each_other: holds(&two_settle());
    a_reader_that_reads_up_to_the_value_is_noticed:
        is_caught(&settling(), Mutation::ValueForSettled, &[Promise::LastStateArrives]);
    settling_what_was_not_seen_is_noticed:
        is_caught(&left_unsettled(), Mutation::SettledUnseen, &[Promise::LastStateArrives]);
    a_publication_on_top_of_one_that_is_not_settled_is_noticed:
        is_caught(&left_unsettled(), Mutation::LastNotSettled, &[Promise::LastStateArrives]);
    settling_without_a_condition_on_the_sequence_is_noticed:
        is_caught(&two_settle(), Mutation::SettledWithoutCondition, &[Promise::ComesToRest]);
}
