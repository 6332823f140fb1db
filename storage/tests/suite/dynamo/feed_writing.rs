//! Changing keys of a feed where others, throttling and lost answers are in the way.

use state_machine::feed::{Version, WriteResult};
use storage::{FeedTables, StoreError};

use crate::dynamo::feed_replies::*;
use crate::dynamo::script::{Script, Step, ok, refused};
use crate::dynamo::things::options;

async fn write(script: &Script) -> Result<WriteResult, StoreError> {
    script.open().write_key(feed(), key("a"), value("new"), KEYS_MAX).await
}

#[tokio::test]
async fn a_write_is_one_transaction_in_which_the_key_leaves_its_number() {
    let script = Script::new([row(2, Some(7)), ok("{}")]);
    assert_eq!(write(&script).await, Ok(WriteResult::Done(Version(3))));
    assert_eq!(script.asked(), ["GetItem", "TransactWriteItems"]);
    assert_eq!(script.of("GetItem")[0]["ConsistentRead"], true);
    let items = &script.of("TransactWriteItems")[0]["TransactItems"];
    assert_eq!(items.as_array().unwrap().len(), 3);
    let put = &items[0]["Put"];
    assert_eq!(put["Item"]["item"]["S"], "k:a");
    assert_eq!(put["Item"]["version"]["N"], "3");
    assert!(put["Item"]["number"].is_null(), "it waits");
    assert_eq!(put["ConditionExpression"], "version = :version");
    assert_eq!(put["ExpressionAttributeValues"][":version"]["N"], "2");
    assert_eq!(items[1]["Put"]["Item"]["item"]["S"], "p:a");
    assert_eq!(items[2]["Delete"]["Key"]["item"]["S"], format!("n:{:020}", 7));
}

#[tokio::test]
async fn a_conflicting_write_is_retried_on_the_present_row() {
    let lost = cancelled(&[CONDITION, NONE, NONE]);
    let script = Script::new([row(2, Some(7)), lost, row(3, None), ok("{}")]);
    assert_eq!(write(&script).await, Ok(WriteResult::Done(Version(4))));
    let transactions = script.of("TransactWriteItems");
    let values = &transactions[1]["TransactItems"][0]["Put"]["ExpressionAttributeValues"];
    assert_eq!(values[":version"]["N"], "3");
    assert_eq!(transactions[1]["TransactItems"].as_array().unwrap().len(), 2, "no number to leave");
    let tokens = script.tokens();
    assert_ne!(tokens[0], tokens[1], "it is another transaction");
}

#[tokio::test]
async fn a_write_that_always_loses_is_busy_and_was_not_done() {
    let rounds = (0..20).flat_map(|round| [row(round, None), cancelled(&[CONDITION, NONE])]);
    let script = Script::new(rounds);
    assert_eq!(write(&script).await, Err(StoreError::Busy));
    assert!(script.is_done());
}

/// A server that forgets tokens might have done what it did not answer.
#[tokio::test]
async fn a_conflict_after_a_lost_reply_is_not_busy() {
    let indeterminate = [row(1, None), Step::Lost("{}".to_owned()), cancelled(&[CONDITION, NONE])];
    let rounds = (1..20).flat_map(|round| [row(round, None), cancelled(&[CONDITION, NONE])]);
    let script = Script::new(indeterminate.into_iter().chain(rounds));
    assert!(matches!(write(&script).await, Err(StoreError::Failed(_))));
}

#[tokio::test]
async fn a_temporarily_cancelled_transaction_is_retried_unchanged() {
    for passing in [CONFLICT, "ThrottlingError", "ProvisionedThroughputExceeded"] {
        let script = Script::new([row(1, None), cancelled(&[NONE, passing]), ok("{}")]);
        assert_eq!(write(&script).await, Ok(WriteResult::Done(Version(2))), "{passing}");
        assert_eq!(script.asked(), ["GetItem", "TransactWriteItems", "TransactWriteItems"]);
        let script = Script::new(
            [row(1, None)].into_iter().chain((0..3).map(|_attempt| cancelled(&[NONE, passing]))),
        );
        assert_eq!(write(&script).await, Err(StoreError::Busy), "{passing}");
        assert!(script.is_done());
    }
}

#[tokio::test]
async fn an_invalid_transaction_is_an_error_and_not_retried() {
    let script = Script::new([row(1, None), cancelled(&["ValidationError", CONFLICT])]);
    let Err(StoreError::Failed(told)) = write(&script).await else { panic!() };
    let expected = "TransactWriteItems on table feeds: the transaction was cancelled: \
                    ValidationError, TransactionConflict";
    assert_eq!(told, expected);
}

#[tokio::test]
async fn a_transaction_whose_reply_is_lost_is_retried_with_the_same_token() {
    let script = Script::new([row(1, None), Step::Lost("{}".to_owned()), ok("{}")]);
    assert_eq!(write(&script).await, Ok(WriteResult::Done(Version(2))));
    let tokens = script.tokens();
    assert_eq!(tokens.len(), 2);
    assert!(tokens[0] == tokens[1] && tokens[0].len() > 30, "{tokens:?}");
}

#[tokio::test]
async fn a_new_key_is_counted_where_there_is_room_for_it() {
    let script = Script::new([nothing(), nothing(), ok("{}")]);
    assert_eq!(write(&script).await, Ok(WriteResult::Done(Version(1))));
    let items = &script.of("TransactWriteItems")[0]["TransactItems"];
    assert_eq!(items[0]["Put"]["ConditionExpression"], "attribute_not_exists(feed)");
    let count = &items[2]["Update"];
    assert_eq!(count["TableName"], "sequences");
    assert_eq!(count["ExpressionAttributeValues"][":max"]["N"], KEYS_MAX.to_string());
}

#[tokio::test]
async fn a_new_key_of_a_feed_that_has_forgotten_begins_above_what_was_forgotten() {
    let sequence = ok(r#"{"Item": {"value": {"N": "9"}, "version": {"N": "9"}, "keys": {"N": "1"},
        "settled": {"N": "9"}, "horizon": {"N": "7"}, "forgotten": {"N": "4"}}}"#);
    let script = Script::new([nothing(), sequence, ok("{}")]);
    assert_eq!(write(&script).await, Ok(WriteResult::Done(Version(5))));
    let count = &script.of("TransactWriteItems")[0]["TransactItems"][2]["Update"];
    assert_eq!(count["ExpressionAttributeValues"][":forgotten"]["N"], "4");
    assert!(count["ConditionExpression"].as_str().unwrap().ends_with("#forgotten = :forgotten)"));
}

#[tokio::test]
async fn too_many_keys_is_only_answered_by_the_count() {
    let full = |keys: u64| {
        ok(&format!(
            r#"{{"Item": {{"value": {{"N": "0"}}, "version": {{"N": "0"}}, "keys": {{"N": "{keys}"}}, "settled": {{"N": "0"}}}}}}"#
        ))
    };
    let refused = || cancelled(&[NONE, NONE, CONDITION]);
    let begun = || [nothing(), nothing()].into_iter();
    let script = Script::new([nothing(), full(KEYS_MAX)]);
    assert_eq!(write(&script).await, Ok(WriteResult::TooManyKeys));
    let script = Script::new(begun().chain([refused(), nothing(), full(KEYS_MAX)]));
    assert_eq!(write(&script).await, Ok(WriteResult::TooManyKeys), "another has filled it");
    let steps = begun().chain([refused(), nothing(), full(KEYS_MAX - 1)]);
    let script = Script::new(steps.chain([ok("{}")]));
    assert_eq!(write(&script).await, Ok(WriteResult::Done(Version(1))), "another made room");
    let both = cancelled(&[CONDITION, NONE, CONDITION]);
    let script = Script::new(begun().chain([both, row(1, None), ok("{}")]));
    assert_eq!(
        write(&script).await,
        Ok(WriteResult::Done(Version(2))),
        "another wrote the same key"
    );
}

/// Its numbers would begin anew.
#[tokio::test]
async fn a_sequence_that_makes_no_sense_is_not_begun_again() {
    let senseless = ok(r#"{"Item": {"name": {"S": "f"}, "keys": {"N": "1"}}}"#);
    let script = Script::new([nothing(), senseless]);
    let Err(StoreError::Failed(told)) = write(&script).await else { panic!() };
    assert!(told.contains("sequences: the row of the sequence is unreadable"), "{told}");
}

#[tokio::test]
async fn a_key_that_is_changed_while_its_value_is_read_is_read_again() {
    let value = |version: u64| {
        ok(&format!(r#"{{"Item": {{"version": {{"N": "{version}"}}, "value": {{"S": "old"}}}}}}"#))
    };
    let changed = [row(2, Some(7)), nothing(), row(3, None), value(4), row(4, None), value(4)];
    let script = Script::new(changed.into_iter().chain([ok("{}")]));
    let republished = script.open().republish_key(feed(), key("a")).await;
    assert_eq!(republished, Ok(Some(Version(5))));
    let items = &script.of("TransactWriteItems")[0]["TransactItems"];
    assert_eq!(items[1]["Put"]["Item"]["value"]["S"], "old");
    let gets = script.of("GetItem");
    assert_eq!(gets[1]["Key"]["item"]["S"], format!("n:{:020}", 7));
    assert_eq!(gets[3]["Key"]["item"]["S"], "p:a");
}

fn not_found() -> Step {
    refused("ResourceNotFoundException")
}

#[tokio::test]
async fn feeds_are_none_where_there_are_no_tables() {
    let script = Script::new((0..5).map(|_call| not_found()));
    let store = script.open();
    assert_eq!(store.republish_key(feed(), key("a")).await, Ok(None));
    assert_eq!(store.delete_key(feed(), key("a")).await, Ok(None));
    assert_eq!(store.publish(feed(), None, 1).await, Ok(None));
    let limit = storage::PageLimit { rows: 1, bytes: 1 };
    assert_eq!(store.fetch_feed(feed(), Default::default(), limit).await, Ok(None));
    assert_eq!(store.feeds(None, 1).await, Ok(vec![]));
    assert!(script.is_done());
}

#[tokio::test]
async fn a_write_without_tables_names_the_missing_tables_if_none_may_be_created() {
    let script = Script::new([not_found(), not_found()]);
    let store = script
        .open_with(&storage_dynamodb::DynamoOptions { create_tables: false, ..options() })
        .unwrap();
    let refused = store.write_key(feed(), key("a"), value("new"), KEYS_MAX).await;
    let Err(StoreError::Failed(told)) = refused else { panic!("{refused:?}") };
    assert!(told.contains("sequences") && told.contains("kalends tables create"), "{told}");
    assert_eq!(script.asked(), ["GetItem", "DescribeTable"]);
}
