//! Feeds that forget: the horizon, and the entries that are removed.

use state_machine::Time;
use state_machine::feed::{FeedMark, FeedSyncId, Forgotten};

use crate::conformance::feed_world::*;
use crate::conformance::world::World;
use crate::names::until_done;

/// `a` to `e` have the numbers 1 to 5, and `b` is deleted as number 6.
async fn furnish(world: &World) {
    write_all(&**world, FEED, &["a", "b", "c", "d", "e"]).await;
    publish_all(&**world, FEED).await;
    delete(&**world, FEED, "b").await;
    publish_all(&**world, FEED).await;
}

async fn forget(world: &World, through: u64, limit: usize) -> Forgotten {
    let forgotten = insist(|| world.forget(feed(FEED), FeedSyncId(through), limit)).await;
    forgotten.expect("the feed is there")
}

async fn forget_all(world: &World, through: u64) -> usize {
    let mut count = 0;
    until_done(async || {
        let forgotten = forget(world, through, 2).await;
        count += forgotten.count;
        !forgotten.is_all
    })
    .await;
    count
}

pub(crate) async fn a_feed_that_is_unknown_forgets_nothing(world: World) {
    assert_eq!(world.forget(feed(FEED), FeedSyncId(1), 1).await, Ok(None));
    let mark = FeedMark { number: FeedSyncId(1), at: Time(1) };
    assert_eq!(world.mark_feed(feed(FEED), mark).await, Ok(()));
    assert_eq!(world.feeds(None, 1).await, Ok(Vec::new()));
}

pub(crate) async fn entries_up_to_the_horizon_are_removed_and_no_longer_count(world: World) {
    furnish(&world).await;
    assert_eq!(forget_all(&world, 3).await, 2, "a and c: the number 2 was given up");
    let sequence = sequence(&*world, FEED).await;
    assert_eq!((sequence.keys, sequence.horizon), (3, FeedSyncId(3)));
    let left = [saw(4, "d", 2, "d"), saw(5, "e", 2, "e"), saw_gone(6, "b", 4)];
    assert_eq!(updates(&*world, FEED, 0).await, left);
    assert_eq!(forget_all(&world, 3).await, 0);
}

pub(crate) async fn a_step_removes_no_more_than_its_limit_and_hides_the_rest(world: World) {
    furnish(&world).await;
    let forgotten = forget(&world, 5, 1).await;
    assert_eq!(forgotten, Forgotten { count: 1, is_all: false });
    assert_eq!(sequence(&*world, FEED).await.horizon, FeedSyncId(5), "it is raised first");
    assert_eq!(updates(&*world, FEED, 0).await, [saw_gone(6, "b", 4)]);
    assert_eq!(forget_all(&world, 0).await, 3, "also without being named again");
}

pub(crate) async fn a_horizon_never_decreases_nor_passes_the_head(world: World) {
    furnish(&world).await;
    forget_all(&world, 4).await;
    forget_all(&world, 2).await;
    assert_eq!(sequence(&*world, FEED).await.horizon, FeedSyncId(4));
    forget_all(&world, 1000).await;
    let sequence = sequence(&*world, FEED).await;
    assert_eq!(
        (sequence.horizon, sequence.value, sequence.keys),
        (FeedSyncId(6), FeedSyncId(6), 0)
    );
    let nothing = page(&*world, FEED, 0, PAGE).await;
    assert_eq!((nothing.cursor, nothing.updates.len()), (FeedSyncId(6), 0));
    write(&*world, FEED, "f", "f").await;
    publish_all(&*world, FEED).await;
    assert_eq!(updates(&*world, FEED, 6).await.len(), 1, "its numbers continue");
}

pub(crate) async fn a_cursor_below_the_horizon_is_too_late_and_none_is_not(world: World) {
    furnish(&world).await;
    forget_all(&world, 3).await;
    for (after, expected) in [(0, false), (1, true), (2, true), (3, false), (4, false), (6, false)]
    {
        let page = page(&*world, FEED, after, PAGE).await;
        assert_eq!(page.is_too_late(FeedSyncId(after)), expected, "after {after}: {page:?}");
    }
}

pub(crate) async fn a_key_that_waits_is_not_forgotten(world: World) {
    furnish(&world).await;
    write(&*world, FEED, "a", "again").await;
    republish(&*world, FEED, "c").await;
    assert_eq!(forget_all(&world, 6).await, 3, "d, e and the tombstone");
    publish_all(&*world, FEED).await;
    let left = [saw(7, "a", 4, "again"), saw(8, "c", 4, "c")];
    assert_eq!(updates(&*world, FEED, 6).await, left);
}

pub(crate) async fn the_versions_of_a_forgotten_key_continue(world: World) {
    furnish(&world).await;
    forget_all(&world, 6).await;
    assert!(write(&*world, FEED, "b", "again").await > 4);
    assert!(write(&*world, FEED, "new", "1").await > 4, "whichever key it is");
    assert_eq!(world.republish_key(feed(FEED), key("a")).await, Ok(None));
    assert_eq!(world.delete_key(feed(FEED), key("a")).await, Ok(None));
    publish_all(&*world, FEED).await;
    let sequence = sequence(&*world, FEED).await;
    assert_eq!((sequence.keys, sequence.horizon), (2, FeedSyncId(6)));
}

pub(crate) async fn horizon_and_mark_are_there_after_a_restart(world: World) {
    furnish(&world).await;
    forget_all(&world, 3).await;
    for number in [4, 5] {
        let mark = FeedMark { number: FeedSyncId(number), at: Time(1_793_700_000_000 + number) };
        world.mark_feed(feed(FEED), mark).await.unwrap();
        assert_eq!(sequence(&*world, FEED).await.mark, Some(mark));
    }
    publish_all(&*world, FEED).await;
    let before = sequence(&*world, FEED).await;
    let world = world.restart().await;
    assert_eq!(sequence(&*world, FEED).await, before);
    assert_eq!(updates(&*world, FEED, 0).await.len(), 3);
}

/// Writers, a publisher and a node that forgets, at once.
pub(crate) async fn a_reader_whose_entries_are_forgotten_meanwhile_starts_over(world: World) {
    furnish(&world).await;
    let (mut reader, mut restarts) = (Follower::default(), 0);
    for round in 0..20_u64 {
        reader.poll_or_restart(&*world, FEED, &mut restarts).await;
        let name = format!("k{}", round % 3);
        write(&*world, FEED, &name, "1").await;
        publish_all(&*world, FEED).await;
        delete(&*world, FEED, &name).await;
        publish_all(&*world, FEED).await;
        if round % 2 == 1 {
            let head = sequence(&*world, FEED).await.value.0;
            forget_all(&world, head).await;
        }
    }
    reader.poll_or_restart(&*world, FEED, &mut restarts).await;
    reader.catch_up(&*world, FEED).await;
    assert!(restarts > 0);
    assert_eq!(reader.known, Follower::of_now(&*world, FEED).await.known);
}
