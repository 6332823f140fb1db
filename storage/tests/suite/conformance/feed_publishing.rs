//! Publishing: which keys get which numbers, in how many steps.

use state_machine::feed::{FeedSyncId, FeedValue, PublishResult, Sequence};

use crate::conformance::feed_world::*;
use crate::conformance::world::World;
use crate::names::each_page;

fn numbers(seen: &[Seen]) -> Vec<(u64, &str)> {
    seen.iter().map(|(number, key, ..)| (*number, key.as_str())).collect()
}

pub(crate) async fn where_nothing_waits_nothing_is_published(world: World) {
    write(&*world, FEED, "a", "1").await;
    publish_all(&*world, FEED).await;
    let before = sequence(&*world, FEED).await;
    let nothing = PublishResult { count: 0, head: FeedSyncId(1), next: None };
    for limit in [1, 10] {
        assert_eq!(world.publish(feed(FEED), None, limit).await, Ok(Some(nothing.clone())));
    }
    assert_eq!(sequence(&*world, FEED).await, before, "no number was assigned");
    assert_eq!(updates(&*world, FEED, 0).await, [saw(1, "a", 2, "1")]);
}

pub(crate) async fn one_publication_gives_the_first_key_the_next_number(world: World) {
    write_all(&*world, FEED, &["b", "c", "a"]).await;
    for (number, name) in [(1, "a"), (2, "b")] {
        let published = publish(&*world, FEED, 1).await;
        let next = Some(key(name));
        assert_eq!(published, PublishResult { count: 1, head: FeedSyncId(number), next });
    }
    let last = publish(&*world, FEED, 1).await;
    assert_eq!((last.count, last.head), (1, FeedSyncId(3)));
    let expected = [saw(1, "a", 2, "a"), saw(2, "b", 2, "b"), saw(3, "c", 2, "c")];
    assert_eq!(updates(&*world, FEED, 0).await, expected);
}

pub(crate) async fn a_batch_is_numbered_in_the_order_of_its_keys(world: World) {
    write_all(&*world, FEED, &["d", "b", "c", "a"]).await;
    assert_eq!(publish_all(&*world, FEED).await, 4);
    let seen = updates(&*world, FEED, 0).await;
    assert_eq!(numbers(&seen), [(1, "a"), (2, "b"), (3, "c"), (4, "d")]);
}

pub(crate) async fn a_publication_starts_after_the_given_key(world: World) {
    write_all(&*world, FEED, &["a", "b", "c"]).await;
    let published = world.publish(feed(FEED), Some(key("a")), 1).await.unwrap().unwrap();
    assert_eq!((published.count, published.next), (1, Some(key("b"))));
    // A place that no key has is as good as any.
    let published = world.publish(feed(FEED), Some(key("bb")), 1).await.unwrap().unwrap();
    assert_eq!((published.count, published.head), (1, FeedSyncId(2)));
    assert_eq!(numbers(&updates(&*world, FEED, 0).await), [(1, "b"), (2, "c")]);
    let behind_all = world.publish(feed(FEED), Some(key("z")), 1).await.unwrap().unwrap();
    assert_eq!(behind_all, PublishResult { count: 0, head: FeedSyncId(2), next: None });
    assert_eq!(publish_all(&*world, FEED).await, 1, "the first one waits as before");
}

pub(crate) async fn a_publication_gives_no_more_numbers_than_its_limit(world: World) {
    write_all(&*world, FEED, &["a", "b", "c", "d", "e"]).await;
    let published = publish(&*world, FEED, 3).await;
    assert!((1..=3).contains(&published.count), "{published:?}");
    assert_eq!(published.head, FeedSyncId(published.count as u64));
    assert!(published.next.is_some(), "others wait");
    assert_eq!(updates(&*world, FEED, 0).await.len(), published.count);
}

pub(crate) async fn a_limit_of_zero_still_publishes_a_key(world: World) {
    write_all(&*world, FEED, &["a", "b"]).await;
    assert_eq!(publish(&*world, FEED, 0).await.count, 1);
    assert_eq!(numbers(&updates(&*world, FEED, 0).await), [(1, "a")]);
}

pub(crate) async fn a_key_gets_one_number_for_a_change(world: World) {
    write_all(&*world, FEED, &["a", "b"]).await;
    assert_eq!(publish_all(&*world, FEED).await, 2);
    assert_eq!(publish_all(&*world, FEED).await, 0);
    write(&*world, FEED, "b", "2").await;
    assert_eq!(publish_all(&*world, FEED).await, 1);
    assert_eq!(updates(&*world, FEED, 0).await, [saw(1, "a", 2, "a"), saw(3, "b", 4, "2")]);
}

pub(crate) async fn publishing_the_last_record_again_gives_it_a_greater_number(world: World) {
    write(&*world, FEED, "a", "1").await;
    for number in 1..=5 {
        publish_all(&*world, FEED).await;
        assert_eq!(updates(&*world, FEED, number - 1).await, [saw(number, "a", 2 * number, "1")]);
        assert_eq!(updates(&*world, FEED, number).await, []);
        republish(&*world, FEED, "a").await;
    }
}

pub(crate) async fn numbers_go_on_where_no_key_has_one(world: World) {
    write_all(&*world, FEED, &["a", "b"]).await;
    publish_all(&*world, FEED).await;
    republish(&*world, FEED, "a").await;
    delete(&*world, FEED, "b").await;
    assert_eq!(updates(&*world, FEED, 0).await, []);
    let world = world.restart().await;
    publish_all(&*world, FEED).await;
    assert_eq!(updates(&*world, FEED, 0).await, [saw(3, "a", 4, "a"), saw_gone(4, "b", 4)]);
}

pub(crate) async fn numbers_go_on_growing_after_a_restart(mut world: World) {
    for round in 1..=4 {
        write(&*world, FEED, "a", "1").await;
        publish_all(&*world, FEED).await;
        world = world.restart().await;
        assert_eq!(updates(&*world, FEED, 0).await, [saw(round, "a", 2 * round, "1")]);
    }
    let expected = Sequence { value: FeedSyncId(4), version: 4, keys: 1, ..Sequence::default() };
    assert_eq!(sequence(&*world, FEED).await, expected);
}

/// More than one transaction of DynamoDB's can have.
pub(crate) async fn more_keys_than_a_transaction_can_hold_are_all_published(world: World) {
    let names: Vec<String> = (0..300).map(|number| format!("key {number:03}")).collect();
    write_all(&*world, FEED, &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let mut count = 0;
    each_page(async |after| {
        let published = world.publish(feed(FEED), after, usize::MAX).await.unwrap().unwrap();
        count += published.count;
        assert_eq!(published.head, FeedSyncId(count as u64), "each number to a key");
        published.next
    })
    .await;
    let seen = updates(&*world, FEED, 0).await;
    let expected: Vec<_> = (1..).zip(names.iter().map(String::as_str)).collect();
    assert_eq!((count, numbers(&seen)), (300, expected));
}

/// More than one transaction of DynamoDB's can have, and more than one answer to a query.
pub(crate) async fn more_bytes_than_a_transaction_can_hold_are_all_published(world: World) {
    let large_value = "v".repeat(FeedValue::BYTES_MAX);
    for number in 0..20 {
        write(&*world, FEED, &format!("{number:02}"), &large_value).await;
    }
    assert_eq!(publish_all(&*world, FEED).await, 20);
    let seen = updates(&*world, FEED, 0).await;
    assert_eq!(seen.len(), 20);
    assert!(
        seen.iter()
            .all(|(_, _, version, value)| (*version, value.as_ref()) == (2, Some(&large_value)))
    );
}
