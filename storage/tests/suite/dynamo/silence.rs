//! Servers that do not reply in time block neither their caller nor other callers for ever.

use std::time::Duration;

use storage::{Store, StoreError};
use tokio::sync::oneshot;

use crate::dynamo::script::{Script, Step, ok};
use crate::dynamo::things::*;
use crate::store_calls::StoreCalls;

#[tokio::test]
async fn a_silent_server_is_waited_for_up_to_the_timeout() {
    let mut options = options();
    options.attempt_timeout = Duration::from_millis(30);
    options.operation_timeout = Duration::from_millis(50);
    let script = Script::new([Step::Silence, Step::Silence, Step::Silence]);
    let store = script.open_with(&options).unwrap();
    let told = "GetItem on table router: no answer in time".to_owned();
    assert_eq!(store.record(AGENT).await, Err(StoreError::Failed(told)));
    assert!(!script.is_done(), "there is no time for three attempts");
}

#[tokio::test]
async fn an_attempt_without_an_answer_is_followed_by_another() {
    let mut options = options();
    options.attempt_timeout = Duration::from_millis(30);
    let script = Script::new([Step::Silence, ok("{}")]);
    let store = script.open_with(&options).unwrap();
    assert_eq!(store.record(AGENT).await, Ok(None));
}

#[tokio::test]
async fn a_write_waits_only_for_earlier_writes_of_its_agent() {
    let (release, released) = oneshot::channel();
    let script = Script::new([Step::Held(released, "{}".to_owned()), ok("{}"), ok("{}"), ok("{}")]);
    let store = script.open();
    let first = store.drop_user(AGENT);
    script.next_request().await;
    let second = store.forget_channel(AGENT);
    let other = state_machine::Uaid([2; 16]);
    assert_eq!(store.drop_user(other).await, Ok(false));
    assert_eq!(store.record(AGENT).await, Ok(None), "reads do not wait for writes");
    assert_eq!(script.asked(), ["DeleteItem", "DeleteItem", "GetItem"]);
    release.send(()).unwrap();
    assert_eq!(first.await, Ok(false));
    assert_eq!(second.await, Ok(()));
    assert_eq!(script.asked(), ["DeleteItem", "DeleteItem", "GetItem", "UpdateItem"]);
}

/// A write of an agent with another operation than a dropped record.
trait ForgetChannel {
    fn forget_channel(&self, uaid: state_machine::Uaid) -> storage::StoreFuture<()>;
}

impl ForgetChannel for storage_dynamodb::Dynamo {
    fn forget_channel(&self, uaid: state_machine::Uaid) -> storage::StoreFuture<()> {
        self.remove_channel(uaid, vec![november()], CHANNEL)
    }
}

#[tokio::test]
async fn a_store_with_too_much_to_do_is_busy_at_once_and_does_nothing_of_it() {
    let (release, released) = oneshot::channel();
    let mut options = options();
    options.requests_max = 1;
    let script = Script::new([Step::Held(released, "{}".to_owned())]);
    let store = script.open_with(&options).unwrap();
    let first = store.drop_user(AGENT);
    assert_eq!(store.drop_user(AGENT).await, Err(StoreError::Busy));
    assert_eq!(store.record(AGENT).await, Err(StoreError::Busy));
    release.send(()).unwrap();
    assert_eq!(first.await, Ok(false));
    store.close().await.unwrap();
    assert_eq!(script.asked(), ["DeleteItem"]);
}

#[tokio::test]
async fn a_dropped_store_finishes_its_queued_calls() {
    let (release, released) = oneshot::channel();
    let script = Script::new([Step::Held(released, "{}".to_owned()), ok("{}")]);
    let store = script.open();
    drop(store.drop_user(AGENT));
    let last = store.drop_user(AGENT);
    script.next_request().await;
    drop(store);
    release.send(()).unwrap();
    assert_eq!(last.await, Ok(false));
    assert!(script.is_done());
}
