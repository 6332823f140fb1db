//! The jobs of feeds on a real store, where no server publishes for them.

use state_machine::feed::{FeedKey, FeedName, FeedPage, FeedSyncId, FeedValue, Sequence};
use storage::feeds::FeedState;
use tokio::sync::watch;

use super::broadcast_list::BroadcastList;
use super::delete::Delete;
use super::key_args::KeyArgs;
use super::list::{FeedList, FeedStates};
use super::put::Put;
use super::republish::Republish;
use super::tail::FeedTail;
use crate::command::fixture::Fixture;
use crate::command::{Completion, Output, Report};

fn name(text: &str) -> FeedName {
    FeedName::parse(text).unwrap()
}

fn put(feed: &str, key: &str, value: &str) -> Put {
    Put { of: of(feed, key), value: Some(value.to_owned()) }
}

fn of(feed: &str, key: &str) -> KeyArgs {
    KeyArgs { feed: name(feed), key: FeedKey::parse(key).unwrap(), url: None }
}

fn tail(after: u64, count: Option<u64>) -> FeedTail {
    let (feed, restart_if_gone, cursor_file, url) = (name("f"), false, None, None);
    FeedTail { feed, after, count, once: true, restart_if_gone, cursor_file, json: false, url }
}

/// The updates that are there, `NUMBER KEY=VALUE`, and where to go on.
async fn updates(fixture: &Fixture, tail: FeedTail) -> (Vec<String>, u64) {
    let (lines, end) = fixture.ask(tail).await;
    assert_eq!(end, Completion::Done);
    let (mut updates, mut reached) = (Vec::new(), 0);
    for line in lines {
        let Output::Report(FeedPage { updates: rows, cursor, .. }) = line else {
            panic!("{line:?}")
        };
        reached = cursor.0;
        updates.extend(rows.into_iter().map(|row| {
            let value = row.value.map_or_else(|| "deleted".to_owned(), |value| value.to_string());
            format!("{} {}={value}", row.feed_sync_id, row.key)
        }));
    }
    (updates, reached)
}

#[tokio::test]
async fn a_write_is_published_before_the_command_ends() {
    let fixture = Fixture::with_short_pages(&[]).await;
    let said = fixture.notes(put("f", "a/b", "1")).await;
    assert_eq!(said, ["wrote a/b of f, its version is 1", "published, the last number of f is 1"]);
    let said = fixture.notes(put("f", "a/b", "2")).await;
    assert_eq!(said, ["wrote a/b of f, its version is 3", "published, the last number of f is 2"]);
    let said = fixture.notes(Republish { of: of("f", "a/b") }).await;
    assert_eq!(said[0], "a/b of f gets a new number, its version is 5");
    assert_eq!(updates(&fixture, tail(0, None)).await, (vec!["3 a/b=2".to_owned()], 3));

    let said = fixture.notes(Delete { of: of("f", "a/b") }).await;
    let deleted = ["deleted a/b of f, its version is 7", "published, the last number of f is 4"];
    assert_eq!(said, deleted);
    assert_eq!(updates(&fixture, tail(0, None)).await, (vec!["4 a/b=deleted".to_owned()], 4));
}

#[tokio::test]
async fn keys_that_others_left_unpublished_are_published_too() {
    let fixture = Fixture::with(&[]).await;
    for number in 0..2 {
        let left = FeedKey::parse(&format!("left-{number}")).unwrap();
        let value = FeedValue::parse("x").unwrap();
        fixture.context.store.write_key(name("f"), left, value, 100).await.unwrap();
    }
    assert_eq!(fixture.notes(put("f", "a", "1")).await[1], "published, the last number of f is 3");
}

#[tokio::test]
async fn a_write_beyond_a_bound_is_refused_with_the_setting() {
    let fixture = Fixture::with(&[]).await;
    let why = fixture.refused(put("f", "a", &"x".repeat(101)), "").await;
    assert_eq!(why, "the value has 101 bytes, and f takes 100 (feed_value_bytes_max)");
    for taken in ["a", "b", "c"] {
        fixture.notes(put("f", taken, &"x".repeat(100))).await;
    }
    let why = fixture.refused(put("f", "d", "1"), "f has 3 keys").await;
    assert!(why.contains("feed_keys_max"), "{why}");
    fixture.notes(put("f", "c", "1")).await;
    fixture.notes(put("g", "d", "1")).await;
}

#[tokio::test]
async fn a_missing_key_or_feed_is_refused() {
    let fixture = Fixture::with(&[]).await;
    let why = fixture.refused(Delete { of: of("f", "a") }, "").await;
    assert_eq!(why, "there is no a in f: nothing to delete");
    let why = fixture.refused(Republish { of: of("f", "a") }, "").await;
    assert_eq!(why, "a of f was never written: nothing to publish again");
    let why = "there is no feed f: it begins with its first write";
    fixture.refused(tail(0, None), why).await;

    fixture.notes(put("f", "a", "1")).await;
    let why = "the cursor 2 is from the future, the last number of f is 1";
    fixture.refused(tail(2, None), why).await;
}

#[tokio::test]
async fn a_tail_from_below_the_horizon_is_refused_and_one_from_the_beginning_is_not() {
    let fixture = Fixture::with(&[]).await;
    for of in ["a", "b", "c"] {
        fixture.notes(put("f", of, "1")).await;
    }
    fixture.context.store.forget(name("f"), FeedSyncId(2), 10).await.unwrap();
    let why = "the cursor 1 is too old, f has forgotten deletions up to 2";
    fixture.refused(tail(1, None), why).await;
    for after in [0, 2] {
        assert_eq!(updates(&fixture, tail(after, None)).await, (vec!["3 c=1".to_owned()], 3));
    }
    let restarting = FeedTail { restart_if_gone: true, ..tail(1, None) };
    let (lines, end) = fixture.ask(restarting).await;
    let [Output::Problem(said), Output::Report(page)] = &lines[..] else { panic!("{lines:?}") };
    assert!(said.starts_with("deletions of f behind number 1 are forgotten: starting"), "{said}");
    assert_eq!((end, page.updates[0].key.as_str(), page.cursor.0), (Completion::Done, "c", 3));
}

#[tokio::test]
async fn a_tail_writes_the_updates_behind_a_number_up_to_the_count() {
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
async fn a_store_without_a_publisher_is_polled_until_there_is_an_update() {
    let fixture = Fixture::with(&[]).await;
    fixture.notes(put("f", "a", "1")).await;
    let (_stop, stopped) = watch::channel(false);
    let wanted = FeedTail { once: false, ..tail(1, Some(1)) };
    let tail = fixture.ask_until(wanted, stopped);
    let write = async {
        tokio::time::sleep(std::time::Duration::from_secs(30)).await;
        fixture.notes(put("f", "b", "2")).await
    };
    let ((lines, end), _) = tokio::join!(tail, write);
    let [Output::Report(page)] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((end, page.updates[0].key.as_str(), page.cursor.0), (Completion::Done, "b", 2));
}

#[tokio::test]
async fn a_waiting_tail_can_be_stopped() {
    let fixture = Fixture::with(&[]).await;
    fixture.notes(put("f", "a", "1")).await;
    let (stop, stopped) = watch::channel(false);
    let waiting = FeedTail { once: false, ..tail(1, None) };
    let (ended, ()) = tokio::join!(fixture.ask_until(waiting, stopped), async {
        stop.send_replace(true);
    });
    assert_eq!(ended, (vec![], Completion::Stopped));
}

#[tokio::test]
async fn feeds_and_broadcasts_are_listed() {
    let fixture = Fixture::with(&[]).await;
    assert_eq!(
        fixture.ask(FeedList::default()).await,
        (vec![Output::Report(FeedStates(vec![]))], Completion::Done)
    );
    assert_eq!(fixture.ask(BroadcastList::default()).await, (vec![], Completion::Done));
    for (of, version) in [("b", "1"), ("a/b", "2"), ("c", "3"), ("b", "4")] {
        fixture.notes(put("broadcasts", of, version)).await;
    }
    fixture.notes(Delete { of: of("broadcasts", "c") }).await;
    fixture.notes(put("f", "k", "1")).await;
    let row = |feed: &str, head, keys| {
        // The version of the sequence is the store's own.
        let sequence = Sequence { value: FeedSyncId(head), keys, ..Sequence::default() };
        FeedState { name: name(feed), sequence }
    };
    let expected = FeedStates(vec![row("broadcasts", 5, 3), row("f", 1, 1)]);
    let (lines, _) = fixture.ask(FeedList::default()).await;
    let [Output::Report(shown)] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(shown.json(), expected.json());

    let (lines, _) = fixture.ask(BroadcastList::default()).await;
    let [Output::Report(rows)] = &lines[..] else { panic!("{lines:?}") };
    let rows: Vec<_> = rows.0.iter().map(|(id, version)| format!("{id}={version}")).collect();
    assert_eq!(rows, ["a/b=2", "b=4"]);
}
