//! Keys of feeds: writing, publishing again, deleting, bounds, names.

use state_machine::feed::{FeedKey, FeedSyncId, FeedValue, Sequence, WriteResult};

use crate::conformance::feed_world::*;
use crate::conformance::world::World;

pub(crate) async fn a_feed_is_unknown_before_its_first_write(world: World) {
    write(&*world, "other", "a", "1").await;
    assert_eq!(world.republish_key(feed(FEED), key("a")).await, Ok(None));
    assert_eq!(world.delete_key(feed(FEED), key("a")).await, Ok(None));
    assert_eq!(world.publish(feed(FEED), None, 10).await, Ok(None));
    assert_eq!(world.fetch_feed(feed(FEED), Default::default(), PAGE).await, Ok(None));
    let names = world.feeds(None, 10).await.unwrap();
    assert_eq!(names.into_iter().map(|feed| feed.name).collect::<Vec<_>>(), [feed("other")]);
}

pub(crate) async fn a_feed_is_there_from_its_first_write_on(world: World) {
    write(&*world, FEED, "a", "1").await;
    assert_eq!(page(&*world, FEED, 0, PAGE).await, Default::default());
    assert_eq!(sequence(&*world, FEED).await, Sequence { keys: 1, ..Sequence::default() });
    assert_eq!(publish_all(&*world, FEED).await, 1);
}

pub(crate) async fn each_write_of_a_key_is_one_version_more(world: World) {
    assert_eq!(write(&*world, FEED, "a", "1").await, 1);
    assert_eq!(write(&*world, FEED, "a", "2").await, 2);
    assert_eq!(write(&*world, FEED, "a", "2").await, 3, "also of the same value");
    assert_eq!(write(&*world, FEED, "b", "1").await, 1, "each key has its own");
    publish_all(&*world, FEED).await;
    assert_eq!(updates(&*world, FEED, 0).await, [saw(1, "a", 4, "2"), saw(2, "b", 2, "1")]);
}

pub(crate) async fn a_publication_is_a_change_of_the_row_too(world: World) {
    assert_eq!(write(&*world, FEED, "a", "1").await, 1);
    publish_all(&*world, FEED).await;
    assert_eq!(write(&*world, FEED, "a", "2").await, 3);
    publish_all(&*world, FEED).await;
    assert_eq!(updates(&*world, FEED, 0).await, [saw(2, "a", 4, "2")]);
}

pub(crate) async fn republishing_changes_the_version_and_the_number_only(world: World) {
    write_all(&*world, FEED, &["a", "b"]).await;
    publish_all(&*world, FEED).await;
    assert_eq!(republish(&*world, FEED, "a").await, 3);
    assert_eq!(updates(&*world, FEED, 0).await, [saw(2, "b", 2, "b")], "it left its number");
    assert_eq!(publish_all(&*world, FEED).await, 1);
    assert_eq!(updates(&*world, FEED, 0).await, [saw(2, "b", 2, "b"), saw(3, "a", 4, "a")]);
}

pub(crate) async fn a_key_that_waits_is_republished_and_gets_one_number(world: World) {
    write(&*world, FEED, "a", "1").await;
    assert_eq!(republish(&*world, FEED, "a").await, 2);
    assert_eq!(republish(&*world, FEED, "a").await, 3);
    assert_eq!(publish_all(&*world, FEED).await, 1);
    assert_eq!(updates(&*world, FEED, 0).await, [saw(1, "a", 4, "1")]);
}

pub(crate) async fn a_key_that_was_never_written_is_neither_republished_nor_deleted(world: World) {
    write(&*world, FEED, "a", "1").await;
    write(&*world, "other", "b", "1").await;
    assert_eq!(world.republish_key(feed(FEED), key("b")).await, Ok(None));
    assert_eq!(world.delete_key(feed(FEED), key("b")).await, Ok(None));
    assert_eq!(sequence(&*world, FEED).await.keys, 1);
    assert_eq!(publish_all(&*world, FEED).await, 1);
}

pub(crate) async fn a_deleted_key_is_published_without_a_value(world: World) {
    write_all(&*world, FEED, &["a", "b"]).await;
    publish_all(&*world, FEED).await;
    assert_eq!(delete(&*world, FEED, "a").await, 3);
    assert_eq!(updates(&*world, FEED, 0).await, [saw(2, "b", 2, "b")]);
    publish_all(&*world, FEED).await;
    assert_eq!(updates(&*world, FEED, 1).await, [saw(2, "b", 2, "b"), saw_gone(3, "a", 4)]);
}

pub(crate) async fn a_key_deleted_before_it_was_published_is_published_as_gone(world: World) {
    write(&*world, FEED, "a", "1").await;
    assert_eq!(delete(&*world, FEED, "a").await, 2);
    assert_eq!(publish_all(&*world, FEED).await, 1);
    assert_eq!(updates(&*world, FEED, 0).await, [saw_gone(1, "a", 3)]);
}

pub(crate) async fn there_is_nothing_to_delete_of_a_deleted_key(world: World) {
    write(&*world, FEED, "a", "1").await;
    delete(&*world, FEED, "a").await;
    assert_eq!(world.delete_key(feed(FEED), key("a")).await, Ok(None));
    publish_all(&*world, FEED).await;
    assert_eq!(world.delete_key(feed(FEED), key("a")).await, Ok(None));
    assert_eq!(publish_all(&*world, FEED).await, 0, "nothing of it waits again");
    assert_eq!(updates(&*world, FEED, 0).await, [saw_gone(1, "a", 3)]);
}

pub(crate) async fn a_deleted_key_is_republished_as_gone(world: World) {
    write(&*world, FEED, "a", "1").await;
    delete(&*world, FEED, "a").await;
    publish_all(&*world, FEED).await;
    assert_eq!(republish(&*world, FEED, "a").await, 4);
    publish_all(&*world, FEED).await;
    assert_eq!(updates(&*world, FEED, 1).await, [saw_gone(2, "a", 5)]);
}

pub(crate) async fn a_deleted_key_is_written_again_and_its_versions_go_on(world: World) {
    write(&*world, FEED, "a", "1").await;
    delete(&*world, FEED, "a").await;
    publish_all(&*world, FEED).await;
    assert_eq!(write(&*world, FEED, "a", "2").await, 4);
    publish_all(&*world, FEED).await;
    assert_eq!(updates(&*world, FEED, 0).await, [saw(2, "a", 5, "2")]);
    assert_eq!(sequence(&*world, FEED).await.keys, 1, "it was never another key");
}

pub(crate) async fn a_key_more_than_allowed_is_not_written(world: World) {
    write_all(&*world, FEED, &["a", "b"]).await;
    let write = |name| world.write_key(feed(FEED), key(name), value("new"), 2);
    assert_eq!(write("c").await, Ok(WriteResult::TooManyKeys));
    assert_eq!(world.republish_key(feed(FEED), key("c")).await, Ok(None));
    assert!(matches!(write("b").await, Ok(WriteResult::Done(_))), "one that is there is written");
    assert_eq!(sequence(&*world, FEED).await.keys, 2);
    publish_all(&*world, FEED).await;
    assert_eq!(updates(&*world, FEED, 0).await, [saw(1, "a", 2, "a"), saw(2, "b", 3, "new")]);
}

pub(crate) async fn keys_that_were_deleted_count_among_those_allowed(world: World) {
    write_all(&*world, FEED, &["a", "b"]).await;
    delete(&*world, FEED, "a").await;
    let write = |name| world.write_key(feed(FEED), key(name), value("new"), 2);
    assert_eq!(write("c").await, Ok(WriteResult::TooManyKeys));
    publish_all(&*world, FEED).await;
    assert_eq!(write("c").await, Ok(WriteResult::TooManyKeys));
    assert!(matches!(write("a").await, Ok(WriteResult::Done(_))), "its place is still its own");
}

pub(crate) async fn a_feed_that_may_have_no_keys_is_not_created(world: World) {
    let refused = world.write_key(feed(FEED), key("a"), value("1"), 0).await;
    assert_eq!(refused, Ok(WriteResult::TooManyKeys));
    assert_eq!(world.feeds(None, 10).await, Ok(Vec::new()));
    assert_eq!(world.fetch_feed(feed(FEED), Default::default(), PAGE).await, Ok(None));
}

pub(crate) async fn feeds_have_keys_and_numbers_of_their_own(world: World) {
    // One that is the beginning of another's name, and one that looks like a row of it.
    let names = ["a", "a-", "a_b", "ab"];
    for (count, name) in names.into_iter().enumerate() {
        for round in 0..=count {
            write(&*world, name, "k", &format!("{name} {round}")).await;
            assert_eq!(publish_all(&*world, name).await, 1);
        }
    }
    delete(&*world, "a-", "k").await;
    for (at, name) in [(1, "a"), (3, "a_b"), (4, "ab")] {
        let last = format!("{name} {}", at - 1);
        assert_eq!(updates(&*world, name, 0).await, [saw(at, "k", 2 * at, &last)]);
        let expected =
            Sequence { value: FeedSyncId(at), version: at, keys: 1, ..Sequence::default() };
        assert_eq!(sequence(&*world, name).await, expected);
    }
    assert_eq!(updates(&*world, "a-", 0).await, []);
}

pub(crate) async fn the_largest_value_and_the_longest_key_come_back(world: World) {
    let long_keys = ["k".repeat(FeedKey::BYTES_MAX), "\u{1f9ff}".repeat(FeedKey::BYTES_MAX / 4)];
    let large_value = "é".repeat(FeedValue::BYTES_MAX / 2);
    for long_key in &long_keys {
        write(&*world, FEED, long_key, &large_value).await;
    }
    assert_eq!(publish_all(&*world, FEED).await, 2);
    let expected = [saw(1, &long_keys[0], 2, &large_value), saw(2, &long_keys[1], 2, &large_value)];
    assert!(updates(&*world, FEED, 0).await == expected, "values too large to be shown");
}

pub(crate) async fn texts_come_back_as_they_were_written(world: World) {
    let texts =
        ["", " ", "null", "\0", "a\0b\n", "\"quoted\"", "'; DROP TABLE feed_keys", "\u{fffd}"];
    for (number, text) in texts.into_iter().enumerate() {
        write(&*world, FEED, &number.to_string(), text).await;
    }
    publish_all(&*world, FEED).await;
    let held: Vec<_> = updates(&*world, FEED, 0).await.into_iter().map(|seen| seen.3).collect();
    assert_eq!(held, texts.map(|text| Some(text.to_owned())));
}

/// Among them some that look like what an engine may make of a key, a number or a feed.
pub(crate) async fn keys_that_look_alike_are_different_keys(world: World) {
    let mut keys = [
        "a",
        "a:",
        "a/b",
        "ab",
        "A",
        "a ",
        " a",
        "p:a",
        "k:a",
        "n:a",
        "k:",
        "p:",
        "n:",
        "0",
        "00",
        "1",
        "n:00000000000000000001",
        "00000000000000000001",
        "prices",
        "%",
        "_",
        "é",
        "e\u{301}",
        "\u{ff5e}",
        "\u{1f9ff}",
    ];
    write_all(&*world, FEED, &keys).await;
    write_all(&*world, FEED, &["a:", "n:00000000000000000001"]).await;
    assert_eq!(publish_all(&*world, FEED).await, keys.len());
    keys.sort_unstable();
    let seen = updates(&*world, FEED, 0).await;
    let numbered: Vec<_> = seen.iter().map(|(number, key, ..)| (*number, key.as_str())).collect();
    assert_eq!(numbered, (1..).zip(keys).collect::<Vec<_>>(), "in the order of their bytes");
    assert!(seen.iter().all(|(_, key, _, value)| Some(key) == value.as_ref()));
}

pub(crate) async fn making_the_tables_again_keeps_what_is_in_them(world: World) {
    write_all(&*world, FEED, &["a", "b"]).await;
    publish(&*world, FEED, 1).await;
    assert_eq!(world.ensure_feeds().await, Ok(()));
    assert_eq!(world.ensure_feeds().await, Ok(()));
    assert_eq!(updates(&*world, FEED, 0).await, [saw(1, "a", 2, "a")]);
    assert_eq!(publish_all(&*world, FEED).await, 1);
}
