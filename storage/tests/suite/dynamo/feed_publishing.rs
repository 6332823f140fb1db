//! Publishing where others, throttling and lost answers are in the way, and what readers see
//! meanwhile.

use serde_json::json;
use state_machine::feed::{FeedPage, FeedSyncId, PublishResult};
use storage::{FeedTables, PageLimit, StoreError};
use tokio::sync::oneshot;

use crate::dynamo::feed_replies::*;
use crate::dynamo::script::{Script, Step, ok, refused};

const LIMIT: PageLimit = PageLimit { rows: 10, bytes: 10_000 };
const REFUSED_BY_SEQUENCE: [&str; 4] = [NONE, NONE, NONE, CONDITION];

async fn publish(script: &Script) -> Result<Option<PublishResult>, StoreError> {
    script.open().publish(feed(), None, 10).await
}

fn done(count: usize, head: u64) -> Result<Option<PublishResult>, StoreError> {
    Ok(Some(PublishResult { count, head: FeedSyncId(head), next: None }))
}

fn pages(script: &Script) -> impl Future<Output = Result<Option<FeedPage>, StoreError>> {
    script.open().fetch_feed(feed(), FeedSyncId(2), LIMIT)
}

#[tokio::test]
async fn a_publication_is_one_transaction_and_then_readers_may_see_it() {
    let script =
        Script::new([sequence(3, 8, 3), waiting(&[("a", 1), ("b", 4)]), ok("{}"), ok("{}")]);
    assert_eq!(publish(&script).await, done(2, 5));
    assert_eq!(script.asked(), ["GetItem", "Query", "TransactWriteItems", "UpdateItem"]);
    assert_eq!(script.of("GetItem")[0]["ConsistentRead"], true);
    assert_eq!(script.of("Query")[0]["ConsistentRead"], true);
    let items = &script.of("TransactWriteItems")[0]["TransactItems"];
    assert_eq!(items.as_array().unwrap().len(), 3 * 2 + 1);
    let second = [&items[3]["Put"], &items[5]["Delete"], &items[4]["Put"]];
    assert_eq!(second[0]["Item"]["version"]["N"], "5");
    assert_eq!(second[0]["Item"]["number"]["N"], "5");
    assert_eq!(second[0]["ExpressionAttributeValues"][":version"]["N"], "4");
    assert_eq!(second[1]["Key"]["item"]["S"], "p:b");
    let published = json!({
        "feed": { "S": "f" }, "item": { "S": format!("n:{:020}", 5) },
        "key": { "S": "b" }, "version": { "N": "5" }, "value": { "S": "b" },
    });
    assert_eq!(second[2]["Item"], published);
    let sequence = &items[6]["Update"];
    assert_eq!(sequence["UpdateExpression"], "SET #value = :value, version = :next");
    assert_eq!(sequence["ConditionExpression"], "version = :read");
    let values = json!({ ":value": { "N": "5" }, ":next": { "N": "9" }, ":read": { "N": "8" } });
    assert_eq!(sequence["ExpressionAttributeValues"], values);
    let settled = &script.of("UpdateItem")[0];
    let values = json!({ ":settled": { "N": "5" }, ":version": { "N": "9" } });
    assert_eq!(settled["ExpressionAttributeValues"], values);
}

#[tokio::test]
async fn a_conflicting_publisher_continues_after_the_other() {
    let lost = [sequence(3, 8, 3), waiting(&[("a", 1)]), cancelled(&REFUSED_BY_SEQUENCE)];
    let again = [sequence(4, 9, 4), waiting(&[("a", 1)]), ok("{}"), ok("{}")];
    let script = Script::new(lost.into_iter().chain(again));
    assert_eq!(publish(&script).await, done(1, 5));
}

#[tokio::test]
async fn a_publisher_that_always_loses_is_busy_and_gave_no_number() {
    let rounds = (0..20).flat_map(|round| {
        [sequence(round, round, round), waiting(&[("a", 1)]), cancelled(&REFUSED_BY_SEQUENCE)]
    });
    let script = Script::new(rounds);
    assert_eq!(publish(&script).await, Err(StoreError::Busy));
    assert!(script.is_done());
}

#[tokio::test]
async fn a_key_that_changed_meanwhile_is_published_as_it_is_now() {
    let lost = cancelled(&[NONE, NONE, NONE, CONDITION, NONE, NONE, NONE]);
    let first = [sequence(3, 8, 3), waiting(&[("a", 1), ("b", 1)]), lost];
    let again = [sequence(3, 8, 3), waiting(&[("a", 1), ("b", 2)]), ok("{}"), ok("{}")];
    let script = Script::new(first.into_iter().chain(again));
    let store = script.open();
    assert_eq!(store.publish(feed(), None, 10).await, done(2, 5));
    assert_eq!(store.engine().unreadable(), 0);
}

/// Such a row is left by no transaction of ours.
#[tokio::test]
async fn a_waiting_row_with_a_wrong_version_blocks_no_other_key() {
    let lost = cancelled(&[CONDITION, NONE, NONE, NONE, NONE, NONE, NONE]);
    let both = || waiting(&[("a", 1), ("b", 1)]);
    let script = Script::new([
        sequence(3, 8, 3),
        both(),
        lost,
        sequence(3, 8, 3),
        both(),
        ok("{}"),
        ok("{}"),
    ]);
    let store = script.open();
    assert_eq!(store.publish(feed(), None, 10).await, done(1, 4));
    assert_eq!(store.engine().unreadable(), 1);
    let items = &script.of("TransactWriteItems")[1]["TransactItems"];
    assert_eq!(items[0]["Put"]["Item"]["item"]["S"], "k:b");
}

#[tokio::test]
async fn a_publication_whose_reply_is_lost_is_retried_with_the_same_token() {
    let lost = Step::Lost("{}".to_owned());
    let script = Script::new([sequence(3, 8, 3), waiting(&[("a", 1)]), lost, ok("{}"), ok("{}")]);
    assert_eq!(publish(&script).await, done(1, 4));
    let tokens = script.tokens();
    assert_eq!(tokens.len(), 2);
    assert_eq!(tokens[0], tokens[1]);
}

/// As a server has it that forgets tokens: the key is not published twice.
#[tokio::test]
async fn a_publication_that_was_done_unseen_is_found_done() {
    let unseen = [Step::Lost("{}".to_owned()), cancelled(&[CONDITION, NONE, NONE, CONDITION])];
    let again = [sequence(4, 9, 3), waiting(&[]), ok("{}"), ok("{}")];
    let script = Script::new(
        [sequence(3, 8, 3), waiting(&[("a", 1)])].into_iter().chain(unseen).chain(again),
    );
    assert_eq!(publish(&script).await, done(0, 4));
    let end = ["GetItem", "Query", "TransactGetItems", "UpdateItem"];
    assert_eq!(script.asked()[4..], end, "and readers may see it");
}

#[tokio::test]
async fn a_throttled_publisher_continues_where_it_stopped() {
    let throttled = cancelled(&["ThrottlingError", NONE, NONE, NONE]);
    let script = Script::new([
        refused("ThrottlingException"),
        sequence(3, 8, 3),
        refused("ProvisionedThroughputExceededException"),
        waiting(&[("a", 1)]),
        throttled,
        ok("{}"),
        refused("ThrottlingException"),
        ok("{}"),
    ]);
    assert_eq!(publish(&script).await, done(1, 4));
}

#[tokio::test]
async fn a_publisher_whose_transaction_is_throttled_all_the_time_is_busy() {
    let throttled = (0..3).map(|_attempt| cancelled(&["ThrottlingError", NONE, NONE, NONE]));
    let read = [sequence(3, 8, 3), waiting(&[("a", 1)])];
    let script = Script::new(read.into_iter().chain(throttled));
    assert_eq!(publish(&script).await, Err(StoreError::Busy));
    assert!(script.is_done());
}

/// Numbers were given, so that it is not as if nothing had been done.
#[tokio::test]
async fn a_publisher_that_cannot_raise_settled_fails() {
    let throttled = (0..3).map(|_attempt| refused("ThrottlingException"));
    let published = [sequence(3, 8, 3), waiting(&[("a", 1)]), ok("{}")];
    let script = Script::new(published.into_iter().chain(throttled));
    assert!(matches!(publish(&script).await, Err(StoreError::Failed(_))));
}

#[tokio::test]
async fn a_dead_publishers_numbers_are_settled_before_the_next_publication() {
    let script = Script::new([
        sequence(5, 9, 3),
        waiting(&[("a", 1)]),
        ok(r#"{"Responses": [{}, {}]}"#),
        ok("{}"),
        ok("{}"),
        ok("{}"),
    ]);
    assert_eq!(publish(&script).await, done(1, 6));
    let asked = script.asked();
    let first = ["GetItem", "Query", "TransactGetItems", "UpdateItem"];
    assert_eq!(asked[..4], first);
    assert_eq!(asked[4..], ["TransactWriteItems", "UpdateItem"]);
    let gets = &script.of("TransactGetItems")[0]["TransactItems"];
    let numbers: Vec<_> =
        gets.as_array().unwrap().iter().map(|get| &get["Get"]["Key"]["item"]["S"]).collect();
    assert_eq!(numbers, [&json!(format!("n:{:020}", 4)), &json!(format!("n:{:020}", 5))]);
    let settled = &script.of("UpdateItem")[0]["ExpressionAttributeValues"];
    assert_eq!(*settled, json!({ ":settled": { "N": "5" }, ":version": { "N": "9" } }));
}

#[tokio::test]
async fn a_publication_that_is_still_under_way_is_not_shown_to_readers() {
    let read = [sequence(5, 9, 3), waiting(&[])];
    let under_way = (0..3).map(|_attempt| cancelled(&[CONFLICT, NONE]));
    let script = Script::new(read.into_iter().chain(under_way));
    assert_eq!(publish(&script).await, Err(StoreError::Busy));
    assert_eq!(script.asked()[2..], ["TransactGetItems"; 3]);
    let read = [sequence(5, 9, 3), waiting(&[]), cancelled(&[NONE, CONFLICT])];
    let script = Script::new(read.into_iter().chain([ok(r#"{"Responses": [{}, {}]}"#), ok("{}")]));
    assert_eq!(publish(&script).await, done(0, 5), "it is waited for");
}

#[tokio::test]
async fn a_reader_reads_the_sequence_first_and_stops_at_settled() {
    // Numbers 4 and 5 were given, and may be seen in part: 5 without 4.
    let script = Script::new([sequence(5, 9, 3), numbered(&[(3, "a")])]);
    let page = pages(&script).await.unwrap().unwrap();
    assert_eq!((page.cursor, page.head), (FeedSyncId(3), FeedSyncId(3)));
    assert_eq!(page.updates.len(), 1);
    assert_eq!(script.asked(), ["GetItem", "Query"]);
    assert_eq!(script.of("GetItem")[0]["ConsistentRead"], true);
    let query = &script.of("Query")[0];
    assert_eq!(query["ConsistentRead"], true);
    let values = &query["ExpressionAttributeValues"];
    assert_eq!(values[":first"]["S"], format!("n:{:020}", 3));
    assert_eq!(values[":last"]["S"], format!("n:{:020}", 3));
}

#[tokio::test]
async fn a_reader_beside_a_publication_passes_none_of_its_numbers() {
    let (release, released) = oneshot::channel();
    let script = Script::new([
        sequence(3, 8, 3),
        waiting(&[("a", 1), ("b", 1)]),
        Step::Held(released, "{}".to_owned()),
        // The transaction is there in part: the sequence already, its rows not yet.
        sequence(5, 9, 3),
        numbered(&[]),
        // The number 3 is missing: it was given up, or is forgotten.
        sequence(5, 9, 3),
        ok("{}"),
        sequence(5, 9, 5),
        numbered(&[(4, "a"), (5, "b")]),
    ]);
    let store = script.open();
    let publishing = tokio::spawn(store.publish(feed(), None, 10));
    for _request in 0..3 {
        script.next_request().await;
    }
    let page = store.fetch_feed(feed(), FeedSyncId(2), LIMIT).await.unwrap().unwrap();
    assert_eq!((page.cursor, page.updates.len()), (FeedSyncId(3), 0));
    release.send(()).unwrap();
    assert_eq!(publishing.await.unwrap(), done(2, 5));
    let page = store.fetch_feed(feed(), page.cursor, LIMIT).await.unwrap().unwrap();
    let numbers: Vec<u64> = page.updates.iter().map(|update| update.feed_sync_id.0).collect();
    assert_eq!((page.cursor, numbers), (FeedSyncId(5), vec![4, 5]));
}

/// It is the other table that is missing then.
#[tokio::test]
async fn a_feed_without_the_table_of_its_keys_is_not_taken_for_an_empty_one() {
    let missing = || refused("ResourceNotFoundException");
    let script = Script::new([sequence(3, 8, 3), missing(), sequence(3, 8, 3), missing()]);
    assert!(matches!(pages(&script).await, Err(StoreError::Failed(_))));
    assert!(matches!(publish(&script).await, Err(StoreError::Failed(_))));
}

#[tokio::test]
async fn a_page_of_the_server_that_is_cut_short_ends_the_page() {
    let cut = json!({
        "Items": [{ "feed": { "S": "f" }, "item": { "S": format!("n:{:020}", 3) }, "key": { "S": "a" }, "version": { "N": "2" } }],
        "LastEvaluatedKey": { "feed": { "S": "f" }, "item": { "S": format!("n:{:020}", 3) } },
    });
    let script = Script::new([sequence(9, 9, 9), ok(&cut.to_string())]);
    let page = pages(&script).await.unwrap().unwrap();
    assert_eq!((page.cursor, page.head), (FeedSyncId(3), FeedSyncId(9)));
}

/// Else a reader would ask for the same page for ever.
#[tokio::test]
async fn a_reader_that_finds_only_unreadable_rows_fails() {
    let senseless = json!({
        "Items": [{ "feed": { "S": "f" }, "item": { "S": "n:0!" } }],
        "LastEvaluatedKey": { "feed": { "S": "f" }, "item": { "S": "n:0!" } },
    });
    let pages_of_it = (0..10).map(|_query| ok(&senseless.to_string()));
    let script = Script::new([sequence(9, 9, 9)].into_iter().chain(pages_of_it));
    let Err(StoreError::Failed(told)) = pages(&script).await else { panic!() };
    assert!(
        told.starts_with("Query on table feeds: all rows in place of updates are unreadable"),
        "{told}"
    );
    assert!(script.is_done());
}
