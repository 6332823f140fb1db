//! All disorder at once: too large for a search, so the checker walks at random.

use crate::feed_models::scenario::{Bounds, Scenario};
use crate::search::{by_size, holds_on_walks};

fn wide() -> Scenario {
    Scenario::new("wide", 3, 2)
        .batch(2)
        .follower(0)
        .follower(1)
        .follower(1)
        .bound(Bounds {
            forgets: 2,
            writes: 6,
            republishes: 3,
            deletes: 3,
            polls: 3,
            node_crashes: 2,
            follower_crashes: 2,
            refusals: 3,
            lost_answers: 2,
        })
        .seen("a deleted key is published", |_, world| {
            let mut rows = world.store.feed().keys.values();
            rows.any(|row| row.value.is_none() && row.feed_sync_id.is_some())
        })
        .seen("a publication arrives after a crash or a lost answer", |_, world| {
            !world.astray.is_empty()
        })
}

#[test]
fn walks_through_everything_at_once_break_no_promise() {
    holds_on_walks(&wide(), by_size(60_000, 10_000_000));
}
