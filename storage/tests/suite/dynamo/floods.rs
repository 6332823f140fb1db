//! One user agent that is sent too much, one table that hangs: others do not notice.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use state_machine::Uaid;
use storage::{RegisterResult, Store, StoreError, StoreFuture, Stored};
use storage_dynamodb::Dynamo;
use tokio::sync::oneshot;

use crate::dynamo::script::{Script, Step, ok};
use crate::dynamo::things::*;
use crate::store_calls::StoreCalls;

const OTHER: Uaid = Uaid([2; 16]);

/// Channels with the one that messages are sent to.
fn channels() -> String {
    format!(r#"{{"Item": {{"chids": {{"SS": ["{CHANNEL}"]}}}}}}"#)
}

/// A reply that the test releases.
fn held(json: String) -> (oneshot::Sender<()>, Step) {
    let (release, released) = oneshot::channel();
    (release, Step::Held(released, json))
}

fn agent(number: usize) -> Uaid {
    let mut uaid = [9; 16];
    uaid[..8].copy_from_slice(&number.to_be_bytes());
    Uaid(uaid)
}

/// Stores messages until one is refused, which must be at once.
fn flood(store: &Dynamo) -> Vec<StoreFuture<Stored>> {
    let mut answers = Vec::new();
    for _message in 0..1000 {
        let mut answer = store.store_message(AGENT, november(), message(answers.len() as u32));
        match (&mut answer).now_or_never() {
            None => answers.push(answer),
            Some(refused) => {
                assert_eq!(refused, Err(StoreError::Busy));
                return answers;
            }
        }
    }
    panic!("none of {} messages is refused", answers.len());
}

#[tokio::test]
async fn a_flooded_agent_is_busy_alone_and_can_connect() {
    let (releases, mut steps): (Vec<_>, Vec<_>) = (0..48).map(|_| held(channels())).unzip();
    steps.extend([ok("{}"), ok("{}"), ok("{}"), ok(&channels()), ok("{}")]);
    steps.extend((0..48).map(|_| ok("{}")));
    steps.push(ok(REGISTERED));
    let script = Script::new(steps);
    let store = script.open();
    let stores = flood(&store);
    assert_eq!(stores.len(), 48, "three quarters of `agent_writes_max`");
    for _ in &stores {
        script.next_request().await;
    }
    let registered = store.register_user(registration(1));
    let behind = store.store_message(AGENT, november(), message(99));
    assert_eq!(behind.await, Err(StoreError::Busy));

    assert_eq!(store.check().await, Ok(()));
    assert_eq!(store.record(AGENT).await, Ok(None));
    assert_eq!(store.channels(AGENT, november()).await, Ok(None));
    assert_eq!(store.store_message(OTHER, november(), message(1)).await, Ok(Stored::Done));
    assert_eq!(script.asked().len(), 48 + 5, "the registration waits for the stores before it");

    release(releases);
    assert!(matches!(registered.await, Ok(RegisterResult::Registered(..))));
    assert_eq!(script.asked().last().unwrap(), "UpdateItem");
    assert!(join_all(stores).await.iter().all(|stored| *stored == Ok(Stored::Done)));
    assert!(script.is_done());
}

const REGISTERED: &str = r#"{"Attributes": {
    "uaid": {"S": "01010101010101010101010101010101"}, "router_type": {"S": "webpush"},
    "node_id": {"S": "node"}, "connected_at": {"N": "1"}, "curmonth": {"S": "message_2026_11"}
}}"#;

fn release(held: Vec<oneshot::Sender<()>>) {
    for release in held {
        release.send(()).unwrap();
    }
}

#[tokio::test]
async fn a_write_between_two_stores_is_after_the_one_and_before_the_other() {
    let (before, before_step) = held(channels());
    let (beside, beside_step) = held(channels());
    let (between, between_step) = held("{}".to_owned());
    let rest = [ok("{}"), ok("{}"), between_step, ok("{}")];
    let script = Script::new([before_step, beside_step].into_iter().chain(rest));
    let store = script.open();
    let first = [1, 2].map(|number| store.store_message(AGENT, november(), message(number)));
    let removed = store.remove_channel(AGENT, vec![november()], CHANNEL);
    let last = store.store_message(AGENT, november(), message(3));
    script.next_request().await;
    script.next_request().await;
    assert_eq!(script.asked(), ["GetItem"; 2], "both stores are under way");
    release(vec![before, beside]);
    assert_eq!(join_all(first).await, [Ok(Stored::Done), Ok(Stored::Done)]);
    for _ in ["PutItem", "PutItem", "UpdateItem"] {
        script.next_request().await;
    }
    release(vec![between]);
    assert_eq!((removed.await, last.await), (Ok(()), Ok(Stored::NoSuchChannel)));
    assert_eq!(
        script.asked(),
        ["GetItem", "GetItem", "PutItem", "PutItem", "UpdateItem", "GetItem"]
    );
}

#[tokio::test]
async fn stores_to_many_agents_leave_places_for_reads_and_both_for_routing() {
    let (releases, mut steps): (Vec<_>, Vec<_>) = (0..7).map(|_| held("{}".to_owned())).unzip();
    steps.extend([ok("{}"), ok("{}"), ok(REGISTERED)]);
    let mut options = options();
    options.requests_max = 8;
    let script = Script::new(steps);
    let store = script.open_with(&options).unwrap();
    let store_to = |number| store.store_message(agent(number), november(), message(1));
    let stores: Vec<_> = (0..6).map(store_to).collect();
    assert_eq!(store_to(6).await, Err(StoreError::Busy));
    let read = store.channels(AGENT, november());
    assert_eq!(store.channels(AGENT, november()).await, Err(StoreError::Busy));
    for _ in 0..7 {
        script.next_request().await;
    }
    assert_eq!(store.record(AGENT).await, Ok(None));
    assert_eq!(store.check().await, Ok(()));
    assert!(matches!(
        store.register_user(registration(1)).await,
        Ok(RegisterResult::Registered(..))
    ));
    release(releases);
    assert!(join_all(stores).await.iter().all(|stored| *stored == Ok(Stored::NoSuchChannel)));
    assert_eq!(read.await, Ok(None));
}

#[tokio::test]
async fn a_write_that_waited_too_long_behind_others_is_busy_and_not_done() {
    let mut options = options();
    options.operation_timeout = Duration::from_millis(50);
    options.rows_in_flight_max = 1;
    let script = Script::new((0..10).map(|_| Step::Silence));
    let store = script.open_with(&options).unwrap();
    let slow = store.delete_messages(AGENT, vec![november()], references((0..10).map(message)));
    assert_eq!(store.drop_user(AGENT).await, Err(StoreError::Busy));
    assert!(matches!(slow.await, Err(StoreError::Failed(_))));
    store.close().await.unwrap();
    assert!(script.bodies().iter().all(|body| !body.contains(r#""router""#)), "it is not done");
}

#[tokio::test]
async fn message_tables_that_hang_leave_the_router_table_as_it_is() {
    let (releases, mut steps): (Vec<_>, Vec<_>) = (0..6).map(|_| held("{}".to_owned())).unzip();
    steps.extend((0..3 + 294).map(|_| ok("{}")));
    let mut options = options();
    options.connections_max = 8;
    let script = Script::new(steps);
    let store = script.open_with(&options).unwrap();
    let reads: Vec<_> = (0..300).map(|number| store.channels(agent(number), november())).collect();
    for _ in 0..6 {
        script.next_request().await;
    }
    assert_eq!(store.record(AGENT).await, Ok(None));
    assert_eq!(store.check().await, Ok(()));
    assert_eq!(store.months().await, Ok(vec![]));
    assert_eq!(script.asked()[6..], ["GetItem", "UpdateItem", "ListTables"]);
    release(releases);
    assert!(join_all(reads).await.iter().all(|channels| *channels == Ok(None)));
}

#[tokio::test]
async fn without_a_free_connection_in_time_a_call_is_busy_and_sends_no_request() {
    let mut options = options();
    options.operation_timeout = Duration::from_millis(50);
    options.connections_max = 1;
    let script = Script::new((0..100).map(|_| Step::Silence));
    let store = script.open_with(&options).unwrap();
    let stores = (0..100).map(|number| store.store_message(agent(number), november(), message(1)));
    let stored = join_all(stores.collect::<Vec<_>>()).await;
    let busy = stored.iter().filter(|stored| **stored == Err(StoreError::Busy)).count();
    assert!(busy > 0, "one after the other, they would have waited for five seconds");
    assert_eq!(script.asked().len(), 100 - busy, "who is busy asked for nothing");
}
