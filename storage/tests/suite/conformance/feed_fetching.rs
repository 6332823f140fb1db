//! Fetching from feeds: pages, limits, cursors, gaps.

use state_machine::feed::{FeedPage, FeedSyncId};
use storage::PageLimit;

use crate::conformance::feed_world::*;
use crate::conformance::world::World;

/// Publishes keys with these names one by one, so that each has the number of its place.
async fn furnish(world: &World, names: &[&str]) {
    for name in names {
        write(&**world, FEED, name, name).await;
        publish_all(&**world, FEED).await;
    }
}

pub(crate) async fn updates_come_by_their_numbers(world: World) {
    furnish(&world, &["c", "a", "b"]).await;
    let expected = [saw(1, "c", 2, "c"), saw(2, "a", 2, "a"), saw(3, "b", 2, "b")];
    assert_eq!(updates(&*world, FEED, 0).await, expected);
}

/// Their digits sort otherwise: 10 before 9.
pub(crate) async fn more_than_nine_and_ninety_nine_updates_are_ordered_by_their_numbers(
    world: World,
) {
    for _round in 0..11 {
        write_all(&*world, FEED, &["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]).await;
        publish_all(&*world, FEED).await;
    }
    for (after, expected) in [(0, 101..=110), (99, 101..=110), (100, 101..=110), (105, 106..=110)] {
        let seen = updates(&*world, FEED, after).await;
        assert!(seen.iter().map(|(number, ..)| *number).eq(expected), "after {after}: {seen:?}");
    }
}

pub(crate) async fn a_fetch_goes_on_behind_its_cursor(world: World) {
    furnish(&world, &["a", "b", "c"]).await;
    assert_eq!(updates(&*world, FEED, 1).await, [saw(2, "b", 2, "b"), saw(3, "c", 2, "c")]);
    assert_eq!(updates(&*world, FEED, 2).await, [saw(3, "c", 2, "c")]);
    assert_eq!(updates(&*world, FEED, 3).await, []);
}

pub(crate) async fn a_fetch_sees_every_publication_answered_before(world: World) {
    for round in 1..=50 {
        write(&*world, FEED, "a", "1").await;
        assert_eq!(publish(&*world, FEED, 1).await.head, FeedSyncId(round));
        let page = page(&*world, FEED, round - 1, PAGE).await;
        assert_eq!(
            page.updates.iter().map(seen).collect::<Vec<_>>(),
            [saw(round, "a", 2 * round, "1")]
        );
        assert_eq!((page.cursor, page.head), (FeedSyncId(round), FeedSyncId(round)));
    }
}

pub(crate) async fn a_key_is_not_fetched_before_it_is_published(world: World) {
    furnish(&world, &["a"]).await;
    write(&*world, FEED, "b", "b").await;
    let page = page(&*world, FEED, 1, PAGE).await;
    let nothing = FeedPage { cursor: FeedSyncId(1), head: FeedSyncId(1), ..FeedPage::default() };
    assert_eq!(page, nothing);
}

pub(crate) async fn pages_have_no_more_updates_than_asked_for_and_together_all(world: World) {
    furnish(&world, &["a", "b", "c", "d", "e", "f", "g"]).await;
    for rows in [1, 2, 3, 6, 7, 8, usize::MAX] {
        let pages = pages(&*world, FEED, 0, PageLimit { rows, ..PAGE }).await;
        assert!(pages.iter().all(|page| page.updates.len() <= rows), "{pages:?}");
        let updates = pages.iter().flat_map(|page| &page.updates);
        assert!(updates.map(|update| update.feed_sync_id.0).eq(1..=7), "{pages:?}");
    }
}

pub(crate) async fn a_page_ends_with_the_update_that_reaches_its_bytes(world: World) {
    let values = ["x".repeat(10), "x".repeat(1000), "x".repeat(10), String::new(), "x".repeat(20)];
    for (number, value) in values.iter().enumerate() {
        write(&*world, FEED, &number.to_string(), value).await;
    }
    publish_all(&*world, FEED).await;
    for bytes in [1, 10, 11, 1000, 1020, 1041] {
        let pages = pages(&*world, FEED, 0, PageLimit { bytes, ..PAGE }).await;
        for page in &pages {
            let held = page.updates.iter().map(|update| seen(update).3.unwrap_or_default().len());
            let but_the_last = page.updates.len().saturating_sub(1);
            assert!(held.take(but_the_last).sum::<usize>() < bytes, "{bytes}: {page:?}");
        }
        let updates = pages.iter().flat_map(|page| &page.updates);
        assert!(updates.map(|update| update.feed_sync_id.0).eq(1..=5));
    }
}

pub(crate) async fn a_page_limit_of_zero_still_reaches_the_end(world: World) {
    furnish(&world, &["a", "b", "c"]).await;
    let pages = pages(&*world, FEED, 0, PageLimit { rows: 0, bytes: 0 }).await;
    assert!(pages.iter().all(|page| page.updates.len() <= 1));
    assert!(
        pages.iter().flat_map(|page| &page.updates).map(|update| update.feed_sync_id.0).eq(1..=3)
    );
}

/// The numbers 1 to 3 were removed and not assigned since.
pub(crate) async fn the_cursor_moves_over_numbers_that_were_left(world: World) {
    furnish(&world, &["a", "b", "c"]).await;
    for name in ["a", "b", "c"] {
        republish(&*world, FEED, name).await;
    }
    let pages = pages(&*world, FEED, 0, PAGE).await;
    assert!(pages.iter().all(|page| page.updates.is_empty()));
    assert_eq!(pages.last().map(|page| page.cursor), Some(FeedSyncId(3)));
    publish_all(&*world, FEED).await;
    assert_eq!(updates(&*world, FEED, 3).await.len(), 3);
}

pub(crate) async fn gaps_between_updates_hide_none(world: World) {
    let names: Vec<String> = (0..40).map(|number| format!("{number:02}")).collect();
    furnish(&world, &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    for name in names.iter().filter(|name| !name.ends_with('7')) {
        republish(&*world, FEED, name).await;
    }
    for rows in [1, 3, 100] {
        let pages = pages(&*world, FEED, 0, PageLimit { rows, ..PAGE }).await;
        let updates = pages.iter().flat_map(|page| &page.updates);
        assert!(updates.map(|update| update.feed_sync_id.0).eq([8, 18, 28, 38]), "{pages:?}");
        assert_eq!(pages.last().map(|page| page.cursor), Some(FeedSyncId(40)));
    }
}

pub(crate) async fn a_cursor_at_the_head_stays_where_it_is(world: World) {
    furnish(&world, &["a", "b"]).await;
    let page = page(&*world, FEED, 2, PAGE).await;
    assert_eq!(
        page,
        FeedPage { cursor: FeedSyncId(2), head: FeedSyncId(2), ..FeedPage::default() }
    );
}

pub(crate) async fn a_cursor_from_the_future_gets_nothing_and_stays(world: World) {
    furnish(&world, &["a", "b"]).await;
    for after in [3, 1000, i64::MAX as u64, i64::MAX as u64 + 1, u64::MAX] {
        let page = page(&*world, FEED, after, PAGE).await;
        let (cursor, head) = (FeedSyncId(after), FeedSyncId(2));
        assert_eq!(page, FeedPage { cursor, head, ..FeedPage::default() });
    }
}

pub(crate) async fn a_late_consumer_sees_each_keys_last_state_once(world: World) {
    for round in 0..5 {
        for name in ["a", "b", "c"] {
            write(&*world, FEED, name, &round.to_string()).await;
        }
        publish_all(&*world, FEED).await;
    }
    delete(&*world, FEED, "b").await;
    publish_all(&*world, FEED).await;
    let expected = [saw(13, "a", 10, "4"), saw(15, "c", 10, "4"), saw_gone(16, "b", 12)];
    assert_eq!(updates(&*world, FEED, 0).await, expected);
}

pub(crate) async fn feeds_are_listed_by_name(world: World) {
    let names = ["b", "a", "0", "z-9", "_", "-", "ab"];
    for name in names {
        write(&*world, name, "k", "v").await;
    }
    let all = world.feeds(None, 100).await.unwrap();
    let listed: Vec<&str> = all.iter().map(|state| state.name.as_str()).collect();
    assert_eq!(listed, ["-", "0", "_", "a", "ab", "b", "z-9"]);
    assert!(all.iter().all(|state| state.sequence.keys == 1));
}

pub(crate) async fn a_list_of_feeds_goes_on_behind_the_last_of_them(world: World) {
    for name in ["a", "b", "c", "d", "e"] {
        write(&*world, name, "k", "v").await;
    }
    for limit in [1, 2, 4, 5, 6] {
        let (mut listed, mut after) = (Vec::new(), None);
        while listed.len() <= 5 {
            let some = world.feeds(after, limit).await.unwrap();
            assert!(some.len() <= limit);
            listed.extend(some.iter().map(|state| state.name.to_string()));
            after = some.last().map(|state| state.name.clone());
            if some.len() < limit {
                break;
            }
        }
        assert_eq!(listed, ["a", "b", "c", "d", "e"]);
    }
    let names = world.feeds(Some(feed("bb")), 1).await.unwrap();
    assert_eq!(
        names.first().map(|state| &state.name),
        Some(&feed("c")),
        "behind a name that none has"
    );
}
