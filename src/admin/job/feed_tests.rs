//! The jobs of feeds on a real store, where no server publishes for them.

use state_machine::feed::{FeedKey, FeedName, FeedValue};
use tokio::sync::watch;

use crate::admin::feed::{FeedPut, FeedRow, FeedTail, Key, KeyArgs, Name, Page, Value};
use crate::admin::fixture::Fixture;
use crate::admin::output::{Completion, Output};
use crate::admin::request::Request;

fn name(text: &str) -> Name {
    Name(FeedName::parse(text).unwrap())
}

fn key(text: &str) -> Key {
    Key(FeedKey::parse(text).unwrap())
}

fn put(feed: &str, of: &str, value: &str) -> Request {
    let value = Value(FeedValue::parse(value).unwrap());
    Request::FeedPut(FeedPut { feed: name(feed), key: key(of), value })
}

fn of(feed: &str, of: &str) -> KeyArgs {
    KeyArgs { feed: name(feed), key: key(of) }
}

fn tail(after: u64, count: Option<u64>) -> FeedTail {
    FeedTail { feed: name("f"), after, count, once: true }
}

/// The updates that are there, `NUMBER KEY=VALUE`, and where to go on.
async fn updates(fixture: &Fixture, tail: FeedTail) -> (Vec<String>, u64) {
    let (lines, end) = fixture.ask(Request::FeedTail(tail)).await;
    assert_eq!(end, Completion::Done);
    let (mut updates, mut came_to) = (Vec::new(), 0);
    for line in lines {
        let Output::Page(Page { updates: rows, cursor, .. }) = line else { panic!("{line:?}") };
        came_to = cursor;
        updates.extend(rows.into_iter().map(|row| {
            let value = row.value.unwrap_or_else(|| "deleted".into());
            format!("{} {}={value}", row.feed_sync_id, row.key)
        }));
    }
    (updates, came_to)
}

#[tokio::test]
async fn what_is_written_is_published_before_the_command_ends() {
    let fixture = Fixture::with(&[]).await;
    let said = fixture.notes(put("f", "a/b", "1")).await;
    assert_eq!(said, ["wrote a/b of f, its version is 1", "published, f has come to number 1"]);
    let said = fixture.notes(put("f", "a/b", "2")).await;
    assert_eq!(said, ["wrote a/b of f, its version is 3", "published, f has come to number 2"]);
    let said = fixture.notes(Request::FeedRepublish(of("f", "a/b"))).await;
    assert_eq!(said[0], "a/b of f gets a new number, its version is 5");
    assert_eq!(updates(&fixture, tail(0, None)).await, (vec!["3 a/b=2".to_owned()], 3));

    let said = fixture.notes(Request::FeedDelete(of("f", "a/b"))).await;
    let deleted = ["deleted a/b of f, its version is 7", "published, f has come to number 4"];
    assert_eq!(said, deleted);
    assert_eq!(updates(&fixture, tail(0, None)).await, (vec!["4 a/b=deleted".to_owned()], 4));
}

#[tokio::test]
async fn what_others_left_unpublished_is_published_too() {
    let fixture = Fixture::with(&[]).await;
    for number in 0..2 {
        let left = FeedKey::parse(&format!("left-{number}")).unwrap();
        let value = FeedValue::parse("x").unwrap();
        fixture.context.store.write_key(name("f").0, left, value, 100).await.unwrap();
    }
    assert_eq!(fixture.notes(put("f", "a", "1")).await[1], "published, f has come to number 3");
}

#[tokio::test]
async fn what_a_feed_does_not_take_is_refused_with_the_setting_that_says_so() {
    let fixture = Fixture::with(&[]).await;
    let why = fixture.refused(put("f", "a", &"x".repeat(101))).await;
    assert_eq!(why, "the value has 101 bytes, and f takes 100 (feed_value_bytes_max)");
    for taken in ["a", "b", "c"] {
        fixture.notes(put("f", taken, &"x".repeat(100))).await;
    }
    let why = fixture.refused(put("f", "d", "1")).await;
    assert!(why.starts_with("f has 3 keys") && why.contains("feed_keys_max"), "{why}");
    fixture.notes(put("f", "c", "1")).await;
    fixture.notes(put("g", "d", "1")).await;
}

#[tokio::test]
async fn what_is_not_there_is_neither_deleted_nor_published_again_nor_followed() {
    let fixture = Fixture::with(&[]).await;
    let why = fixture.refused(Request::FeedDelete(of("f", "a"))).await;
    assert_eq!(why, "there is no a in f: nothing to delete");
    let why = fixture.refused(Request::FeedRepublish(of("f", "a"))).await;
    assert_eq!(why, "a of f was never written: nothing to publish again");
    let why = fixture.refused(Request::FeedTail(tail(0, None))).await;
    assert!(why.starts_with("there is no feed f: it begins with its first write"), "{why}");

    fixture.notes(put("f", "a", "1")).await;
    let why = fixture.refused(Request::FeedTail(tail(2, None))).await;
    assert!(why.starts_with("the cursor 2 is from the future, f has come to number 1"), "{why}");
}

#[tokio::test]
async fn a_tail_tells_what_is_behind_a_number_and_no_more_than_is_wanted() {
    let fixture = Fixture::with(&[]).await;
    for (of, value) in [("a", "1"), ("b", "2"), ("c", "3"), ("a", "4")] {
        fixture.notes(put("f", of, value)).await;
    }
    let all = ["2 b=2", "3 c=3", "4 a=4"].map(str::to_owned);
    assert_eq!(updates(&fixture, tail(0, None)).await, (all.to_vec(), 4));
    assert_eq!(updates(&fixture, tail(2, None)).await, (all[1..].to_vec(), 4));
    assert_eq!(updates(&fixture, tail(0, Some(2))).await, (all[..2].to_vec(), 3));
    assert_eq!(updates(&fixture, tail(4, None)).await, (vec![], 4));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_nobody_publishes_for_is_looked_at_until_something_comes() {
    let fixture = Fixture::with(&[]).await;
    fixture.notes(put("f", "a", "1")).await;
    let (_stop, stopped) = watch::channel(false);
    let wanted = FeedTail { once: false, ..tail(1, Some(1)) };
    let tail = fixture.ask_until(Request::FeedTail(wanted), stopped);
    let write = async {
        tokio::time::sleep(std::time::Duration::from_secs(30)).await;
        fixture.notes(put("f", "b", "2")).await
    };
    let ((lines, end), _) = tokio::join!(tail, write);
    let [Output::Page(page)] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((end, &*page.updates[0].key, page.cursor), (Completion::Done, "b", 2));
}

#[tokio::test]
async fn a_tail_that_waits_stops_when_it_is_told_to() {
    let fixture = Fixture::with(&[]).await;
    fixture.notes(put("f", "a", "1")).await;
    let (stop, stopped) = watch::channel(false);
    let waiting = FeedTail { once: false, ..tail(1, None) };
    let (ended, ()) = tokio::join!(fixture.ask_until(Request::FeedTail(waiting), stopped), async {
        stop.send_replace(true);
    });
    assert_eq!(ended, (vec![], Completion::Stopped));
}

#[tokio::test]
async fn feeds_and_broadcasts_are_listed() {
    let fixture = Fixture::with(&[]).await;
    assert_eq!(
        fixture.ask(Request::FeedList).await,
        (vec![Output::Feeds(vec![])], Completion::Done)
    );
    assert_eq!(fixture.ask(Request::BroadcastList).await, (vec![], Completion::Done));
    for (of, version) in [("b", "1"), ("a/b", "2"), ("c", "3"), ("b", "4")] {
        fixture.notes(put("broadcasts", of, version)).await;
    }
    fixture.notes(Request::FeedDelete(of("broadcasts", "c"))).await;
    fixture.notes(put("f", "k", "1")).await;
    let row = |feed: &str, head, keys| FeedRow { feed: feed.into(), head, keys };
    let feeds = Output::Feeds(vec![row("broadcasts", 5, 3), row("f", 1, 1)]);
    assert_eq!(fixture.ask(Request::FeedList).await, (vec![feeds], Completion::Done));

    let (lines, _) = fixture.ask(Request::BroadcastList).await;
    let [Output::Broadcasts(rows)] = &lines[..] else { panic!("{lines:?}") };
    let rows: Vec<_> = rows.iter().map(|row| format!("{}={}", row.id, row.version)).collect();
    assert_eq!(rows, ["a/b=2", "b=4"]);
}
