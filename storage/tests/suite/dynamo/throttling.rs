//! Throttling: retried within the budget, then an error.

use storage::maintenance::RecordsByMonth;
use storage::{Store, StoreAdmin, StoreError};

use crate::dynamo::script::{Script, Step, error, failed, ok, refused};
use crate::dynamo::things::*;
use crate::store_calls::StoreCalls;

const THROTTLED: &str = "ProvisionedThroughputExceededException";

#[tokio::test]
async fn a_request_that_is_throttled_is_made_again() {
    let script = Script::new([refused(THROTTLED), refused("ThrottlingException"), ok("{}")]);
    assert_eq!(script.open().record(AGENT).await, Ok(None));
    assert_eq!(script.asked(), ["GetItem"; 3]);
}

#[tokio::test]
async fn throttling_that_outlasts_the_attempts_is_busy() {
    for code in [THROTTLED, "ThrottlingException", "RequestLimitExceeded"] {
        let script = Script::new([refused(code), refused(code), refused(code)]);
        let store = script.open();
        assert_eq!(store.drop_user(AGENT).await, Err(StoreError::Busy), "{code}");
        assert!(script.is_done());
    }
}

/// The SDK's own budget lets some hundred requests be repeated; then it gives up at the first
/// refusal, for as long as the throttling goes on.
#[tokio::test]
async fn many_throttled_requests_do_not_take_each_others_attempts() {
    let steps = (0..200).flat_map(|_request| [refused(THROTTLED), refused(THROTTLED), ok("{}")]);
    let script = Script::new(steps);
    let store = script.open();
    for _request in 0..200 {
        assert_eq!(store.record(AGENT).await, Ok(None));
    }
    assert!(script.is_done());
}

#[tokio::test]
async fn a_message_whose_table_is_throttled_is_not_stored_at_all() {
    let registered = format!(r#"{{"Item": {{"chids": {{"SS": ["{CHANNEL}"]}}}}}}"#);
    let refusals = [THROTTLED; 3].map(refused);
    let script = Script::new([ok(&registered)].into_iter().chain(refusals));
    let stored = script.open().store_message(AGENT, november(), message(1)).await;
    assert_eq!(stored, Err(StoreError::Busy));
    assert_eq!(script.asked(), ["GetItem", "PutItem", "PutItem", "PutItem"]);
}

#[tokio::test]
async fn a_call_that_was_done_in_part_is_not_busy_but_failed() {
    let script = Script::new([ok("{}")].into_iter().chain([THROTTLED; 3].map(refused)));
    let mut options = options();
    options.rows_in_flight_max = 1;
    let store = script.open_with(&options).unwrap();
    let done = references([message(1), message(2)]);
    let deleted = store.delete_messages(AGENT, vec![november()], done).await;
    assert_eq!(
        deleted,
        Err(StoreError::Failed(
            "DeleteItem on table message_2026_11: ProvisionedThroughputExceededException: \
             a message, after a part of it may have been done"
                .to_owned()
        ))
    );
}

#[tokio::test]
async fn a_write_that_may_have_been_done_before_it_was_throttled_is_not_busy() {
    let lost = Step::Lost("{}".to_owned());
    let script = Script::new([lost, refused(THROTTLED), refused(THROTTLED)]);
    let dropped = script.open().drop_user(AGENT).await;
    assert!(matches!(&dropped, Err(StoreError::Failed(text)) if text.contains(THROTTLED)));
}

#[tokio::test]
async fn a_server_error_is_retried_and_then_returned() {
    let script = Script::new([failed(500, "InternalServerError"), ok("{}")]);
    assert_eq!(script.open().record(AGENT).await, Ok(None));
    let failures = [500, 503, 500].map(|status| failed(status, "InternalServerError"));
    let script = Script::new(failures);
    let told = "GetItem on table router: InternalServerError: a message".to_owned();
    assert_eq!(script.open().record(AGENT).await, Err(StoreError::Failed(told)));
    assert!(script.is_done());
}

#[tokio::test]
async fn a_denied_request_fails_at_once_with_operation_and_table() {
    let script = Script::new([refused("AccessDeniedException")]);
    let told = "GetItem on table router: AccessDeniedException: a message".to_owned();
    assert_eq!(script.open().record(AGENT).await, Err(StoreError::Failed(told)));
}

#[tokio::test]
async fn a_message_of_the_service_becomes_one_line() {
    let script = Script::new([Step::Reply(
        400,
        error("ValidationException", "").replace("a message", "two\\n\\tlines"),
    )]);
    let told = "GetItem on table router: ValidationException: two lines".to_owned();
    assert_eq!(script.open().record(AGENT).await, Err(StoreError::Failed(told)));
}

/// A direct notification costs one read of the router table (docs/sources.md#design-notes).
#[tokio::test]
async fn a_record_is_read_by_one_consistent_request() {
    let script = Script::new([ok("{}")]);
    script.open().record(AGENT).await.unwrap();
    assert_eq!(script.asked(), ["GetItem"]);
    let body = &script.bodies()[0];
    assert!(body.contains(r#""TableName":"router""#) && body.contains(r#""ConsistentRead":true"#));
}

/// The check reports whether there are records.
#[tokio::test]
async fn records_are_counted_by_a_consistent_request() {
    let script = Script::new([ok("{}")]);
    assert_eq!(script.open().records_by_month(None).await, Ok(RecordsByMonth::default()));
    assert_eq!(script.asked(), ["Scan"]);
    assert!(script.bodies()[0].contains(r#""ConsistentRead":true"#));
}
