//! Consumers and nodes that crash at any step.

use crate::feed_models::promises::Promise;
use state_machine::feed::FeedSyncId;

use crate::feed_models::check::is_caught;
use crate::feed_models::mutation::Mutation;
use crate::feed_models::rule::read_version;
use crate::feed_models::scenario::{Bounds, Scenario};
use crate::search::{by_size, holds, tests};

fn consumer_crashes() -> Scenario {
    Scenario::new("consumer_crashes", 2, 1)
        .page(1)
        .published(&[0, 1])
        .follower(0)
        .bound(Bounds { writes: 1, follower_crashes: by_size(1, 3), ..Bounds::default() })
        .seen("a page that was consumed is fetched again", |_, world| {
            let follower = &world.followers[0];
            follower.saved == FeedSyncId::NONE
                && follower.replica != Default::default()
                && follower.running.is_none()
        })
}

/// No other node publishes the keys that the crashed node left.
fn node_crashes() -> Scenario {
    Scenario::new("node_crashes", by_size(1, 2), 1)
        .published(&[0])
        .follower(0)
        .followed()
        .bound(Bounds { writes: 2, node_crashes: by_size(1, 2), ..Bounds::default() })
        .seen("a publication arrives when its node has started again", |_, world| {
            !world.astray.is_empty() && world.nodes[0].publish.is_some()
        })
}

/// One node publishes while the other crashes, with a follower through each.
fn one_of_two_nodes_crashes() -> Scenario {
    let scenario = Scenario::new("one_of_two_nodes_crashes", 1, 2).published(&[0]).follower(0);
    let scenario = if by_size(false, true) { scenario.follower(1) } else { scenario };
    scenario.followed().bound(Bounds { writes: 2, node_crashes: 1, ..Bounds::default() }).seen(
        "a publication arrives after another one",
        |_, world| {
            world
                .astray
                .iter()
                .any(|draft| read_version(draft) != Some(world.store.feed().sequence().version))
        },
    )
}

tests! {
    a_consumer_that_crashes_is_given_everything_again_that_it_had_not_saved:
        holds(&consumer_crashes());
    a_node_that_crashes_leaves_nothing_unpublished: holds(&node_crashes());
    a_crash_of_one_of_two_nodes_breaks_no_promise: holds(&one_of_two_nodes_crashes());
}

#[test]
fn a_cursor_that_is_saved_before_its_page_is_consumed_is_noticed() {
    let promises = [Promise::LastStateArrives];
    is_caught(&consumer_crashes(), Mutation::CursorBeforeConsuming, &promises);
}

#[test]
fn a_start_without_a_sweep_is_noticed() {
    is_caught(&node_crashes(), Mutation::NoSweepAtStart, &[Promise::ChangesArePublished]);
}
