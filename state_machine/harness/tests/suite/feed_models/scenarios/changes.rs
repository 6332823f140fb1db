//! Keys are written, republished and deleted while a follower reads.

use crate::feed_models::promises::Promise;

use crate::feed_models::check::is_caught;
use crate::feed_models::mutation::Mutation;
use crate::feed_models::scenario::{Bounds, Scenario};
use crate::search::{by_size, holds, tests};

/// The time table of the feed note: the key with the last number is republished.
fn republished() -> Scenario {
    Scenario::new("republished", by_size(1, 2), 1)
        .published(&[0, 0])
        .follower(0)
        .followed()
        .bound(Bounds { writes: 2, republishes: 2, ..Bounds::default() })
        .seen("the key with the last number waits, and the consumer is past it", |_, world| {
            let head = world.store.feed().sequence().value;
            world.store.feed().greatest() < head && world.followers[0].saved == head
        })
}

/// Keys are written, deleted and written again.
fn deleted() -> Scenario {
    Scenario::new("deleted", 2, 1)
        .published(&[0])
        .follower(0)
        .followed()
        .bound(Bounds { writes: 1, deletes: by_size(1, 2), republishes: 1, ..Bounds::default() })
        .seen("a key is deleted and published", |_, world| {
            let mut rows = world.store.feed().keys.values();
            rows.any(|row| row.value.is_none() && row.feed_sync_id.is_some())
        })
}

/// A follower reads a feed that was never written.
fn from_nothing() -> Scenario {
    Scenario::new("from_nothing", by_size(1, 2), 1)
        .follower(0)
        .bound(Bounds { writes: 2, deletes: by_size(0, 1), ..Bounds::default() })
        .seen("a consumer has found no feed", |_, world| {
            world.followers[0].running.is_none() && world.nodes[0].mail.is_some()
        })
}

tests! {
    a_key_that_is_published_again_arrives: holds(&republished());
    a_key_that_is_deleted_arrives: holds(&deleted());
    a_feed_begins_with_its_first_write: holds(&from_nothing());
}

#[test]
fn the_greatest_number_and_one_is_noticed() {
    let promises = [Promise::NumberedOnce, Promise::SequenceOnlyGrows, Promise::LastStateArrives];
    is_caught(&republished(), Mutation::MaxPlusOne, &promises);
}

#[test]
fn a_number_that_stays_with_a_key_that_changed_is_noticed() {
    let promises = [Promise::NumberedOnce, Promise::LastStateArrives];
    is_caught(&republished(), Mutation::NumberKept, &promises);
}

tests! {
    a_delete_that_leaves_nothing_is_noticed:
        is_caught(&deleted(), Mutation::NoTombstone, &[Promise::LastStateArrives]);
    a_write_that_is_forgotten_during_a_publication_is_noticed:
        is_caught(&deleted(), Mutation::WrittenForgotten, &[Promise::ChangesArePublished]);
}
