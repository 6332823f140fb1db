//! Tombstones are forgotten while consumers read.

use crate::feed_models::promises::{Promise, Replica};

use crate::feed_models::check::is_caught;
use crate::feed_models::mutation::Mutation;
use crate::feed_models::scenario::{Bounds, Scenario};
use crate::search::{by_size, holds, tests};

/// A consumer is in the middle of its first scan, or of a later page, when keys are deleted and forgotten.
fn forgotten() -> Scenario {
    Scenario::new("forgotten", 2, 1)
        .page(by_size(2, 1))
        .published(&[0, 1])
        .follower(0)
        .bound(Bounds { writes: 1, deletes: by_size(1, 2), forgets: 2, ..Bounds::default() })
        .seen("a consumer is behind the horizon", |_, world| {
            let (saved, horizon) =
                (world.followers[0].saved, world.store.feed().sequence().horizon);
            !saved.is_none() && saved < horizon
        })
        .seen("a page is read while a tombstone is removed", |_, world| {
            world.forgetting.is_some() && world.followers[0].is_half_way()
        })
}

/// The same in a store whose publications readers may see in part.
fn forgotten_in_part() -> Scenario {
    Scenario::new("forgotten_in_part", 1, 1)
        .seen_in_part()
        .published(&[0])
        .follower(0)
        .bound(Bounds { writes: 1, deletes: by_size(1, 2), forgets: 1, ..Bounds::default() })
        .seen("a consumer is behind the horizon", |_, world| {
            let (saved, horizon) =
                (world.followers[0].saved, world.store.feed().sequence().horizon);
            !saved.is_none() && saved < horizon
        })
}

/// A consumer applies its first page and stops before it stores a cursor. A deletion is forgotten meanwhile.
fn stopped_early() -> Scenario {
    Scenario::new("stopped_early", 1, 1)
        .published(&[0])
        .follower(0)
        .bound(Bounds { deletes: 1, forgets: 1, follower_crashes: 1, ..Bounds::default() })
        .seen("a consumer without a cursor has a state", |_, world| {
            let follower = &world.followers[0];
            let is_stopped = follower.running.is_none() && follower.saved.is_none();
            is_stopped && follower.replica != Replica::default()
        })
}

tests! {
    a_consumer_ends_with_every_last_state_although_tombstones_are_forgotten: holds(&forgotten());
    a_store_seen_in_part_forgets_without_a_loss: holds(&forgotten_in_part());
    a_tombstone_that_is_removed_before_the_horizon_is_raised_is_noticed:
        is_caught(&forgotten(), Mutation::RemovedBeforeHorizon, &[Promise::LastStateArrives]);
    a_horizon_that_is_not_read_after_the_rows_is_noticed:
        is_caught(&forgotten().page(2), Mutation::HorizonReadFirst, &[Promise::LastStateArrives]);
    a_consumer_that_starts_over_with_what_it_had_is_noticed:
        is_caught(&forgotten(), Mutation::KeptWithoutCursor, &[Promise::LastStateArrives]);
    a_consumer_that_stopped_before_its_first_cursor_ends_with_every_last_state:
        holds(&stopped_early());
    a_consumer_that_stopped_before_its_first_cursor_with_what_it_had_is_noticed:
        is_caught(&stopped_early(), Mutation::KeptWithoutCursor, &[Promise::LastStateArrives]);
}
