//! Conflicts with others, and with one's own request whose answer was lost.

use std::collections::BTreeSet;

use state_machine::{NodeBinding, NodeId, Time};
use storage::{RegisterResult, Store, StoreAdmin, StoreError};

use crate::dynamo::script::{Script, Step, error, failed, ok, refused};
use crate::dynamo::things::*;
use crate::store_calls::StoreCalls;

/// A record as DynamoDB gives it, in the attribute of the answer that is named.
fn record(attribute: &str, node: &str, connected_at: u64) -> String {
    format!(
        r#"{{"{attribute}": {{"uaid": {{"S": "{AGENT}"}}, "router_type": {{"S": "webpush"}},
            "node_id": {{"S": "{node}"}}, "connected_at": {{"N": "{connected_at}"}},
            "last_connect": {{"N": "7"}}, "curmonth": {{"S": "message_2026_11"}}}}}}"#
    )
}

/// A refusal of a condition that shows the record.
fn condition_failed(node: &str, connected_at: u64) -> Step {
    let record = record("Item", node, connected_at);
    let item = record.trim_start_matches('{').trim_end_matches('}');
    let more = format!(",{item}}}}}");
    Step::Reply(400, error("ConditionalCheckFailedException", &more))
}

#[tokio::test]
async fn a_conflict_with_a_transaction_or_another_region_is_tried_again() {
    for code in ["TransactionConflictException", "ReplicatedWriteConflictException"] {
        let script = Script::new([refused(code), ok("{}")]);
        assert_eq!(script.open().drop_user(AGENT).await, Ok(false), "{code}");
        let script = Script::new([code; 3].map(refused));
        assert_eq!(script.open().drop_user(AGENT).await, Err(StoreError::Busy), "{code}");
        assert!(script.is_done());
    }
}

#[tokio::test]
async fn a_request_whose_reply_is_lost_is_retried() {
    let script = Script::new([Step::Lost("{}".to_owned()), ok("{}")]);
    assert_eq!(script.open().check().await, Ok(()));
    assert_eq!(script.asked(), ["UpdateItem"; 2]);
}

#[tokio::test]
async fn a_registration_that_finds_itself_after_a_lost_reply_succeeds() {
    let lost = Step::Lost("{}".to_owned());
    let script = Script::new([lost, condition_failed("node", 100)]);
    let registered = script.open().register_user(registration(100)).await.unwrap();
    let RegisterResult::Registered(record, before) = registered else { panic!("{registered:?}") };
    assert_eq!((record.node, record.connected_at), (Some(NodeId::new("node")), Time(100)));
    assert_eq!(before, None, "what was there before went with the answer");
}

#[tokio::test]
async fn a_retried_registration_returns_the_former_node() {
    let script =
        Script::new([failed(500, "InternalServerError"), ok(&record("Attributes", "other", 99))]);
    let registered = script.open().register_user(registration(100)).await.unwrap();
    let RegisterResult::Registered(record, before) = registered else { panic!("{registered:?}") };
    assert_eq!((record.node, record.connected_at), (Some(NodeId::new("node")), Time(100)));
    assert_eq!(
        (record.last_connect, record.curmonth),
        (registration(100).last_connect, november())
    );
    assert_eq!(before, Some(NodeBinding { node: NodeId::new("other"), connected_at: Time(99) }));
}

#[tokio::test]
async fn fingerprints_are_read_consistently_and_replaced_in_one_request() {
    let there = r#"{"Item": {"uaid": {"S": "keys"}, "marks": {"SS": ["a"]}}}"#;
    let script = Script::new([ok(there), ok("{}")]);
    let store = script.open();
    let marks = store.key_fingerprints().await.unwrap();
    assert_eq!(marks.iter().collect::<Vec<_>>(), ["a"]);
    assert_eq!(store.put_key_fingerprints(marks, ["b".to_owned()].into()).await, Ok(true));
    assert_eq!(script.asked(), ["GetItem", "UpdateItem"]);
    assert!(script.bodies()[0].contains(r#""ConsistentRead":true"#));
}

#[tokio::test]
async fn fingerprints_that_find_themselves_after_a_lost_reply_are_stored() {
    let marks = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    for (there, expected) in [(r#"["b", "a"]"#, true), (r#"["b"]"#, false)] {
        let lost = Step::Lost("{}".to_owned());
        let item = format!(r#","Item": {{"uaid": {{"S": "keys"}}, "marks": {{"SS": {there}}}}}"#);
        let refused = Step::Reply(400, error("ConditionalCheckFailedException", &item));
        let script = Script::new([lost, refused]);
        let put = script.open().put_key_fingerprints(marks(&[]), marks(&["a", "b"])).await;
        assert_eq!(put, Ok(expected));
        assert_eq!(script.asked(), ["UpdateItem"; 2]);
    }
}

#[tokio::test]
async fn a_registration_that_finds_a_newer_one_after_a_lost_reply_is_superseded() {
    for (node, connected_at) in [("other", 100), ("node", 101)] {
        let lost = Step::Lost("{}".to_owned());
        let script = Script::new([lost, condition_failed(node, connected_at)]);
        let registered = script.open().register_user(registration(100)).await;
        assert_eq!(registered, Ok(RegisterResult::Superseded(Time(connected_at))));
    }
}

#[tokio::test]
async fn a_server_that_does_not_show_the_record_is_asked_for_it() {
    let hidden = || refused("ConditionalCheckFailedException");
    let script = Script::new([hidden(), ok(&record("Item", "node", 100))]);
    let registered = script.open().register_user(registration(100)).await;
    assert_eq!(registered, Ok(RegisterResult::Superseded(Time(100))));
    assert_eq!(script.asked(), ["UpdateItem", "GetItem"]);
    assert!(script.bodies()[1].contains(r#""ConsistentRead":true"#));
}

/// It was dropped between the two requests.
#[tokio::test]
async fn a_registration_whose_obstacle_went_away_is_tried_again() {
    let hidden = refused("ConditionalCheckFailedException");
    let written = ok("{}");
    let script = Script::new([hidden, ok("{}"), written]);
    let registered = script.open().register_user(registration(100)).await.unwrap();
    let RegisterResult::Registered(record, None) = registered else { panic!("{registered:?}") };
    assert_eq!((record.connected_at, record.curmonth), (Time(100), november()));
}

#[tokio::test]
async fn a_record_of_another_router_type_is_not_overwritten() {
    let Step::Reply(_, body) = condition_failed("node", 1) else { unreachable!() };
    let script = Script::new([Step::Reply(400, body.replace("webpush", "fcm"))]);
    let registered = script.open().register_user(registration(100)).await;
    assert_eq!(registered, Ok(RegisterResult::UnknownAgent));
}

#[tokio::test]
async fn a_delete_that_finds_no_row_after_a_lost_reply_counts_it() {
    let gone = || refused("ConditionalCheckFailedException");
    let script = Script::new([Step::Lost("{}".to_owned()), gone(), gone()]);
    let store = script.open();
    for expected in [1, 0] {
        let deleted = store.delete_messages(AGENT, vec![november()], references([message(1)]));
        assert_eq!(deleted.await, Ok(expected));
    }
}

/// Such an update would make no item, and the agent would stay unknown. The wire server of the
/// other tests makes one.
#[tokio::test]
async fn no_channels_are_written_by_an_update_that_does_not_only_remove() {
    let script = Script::new([ok("{}")]);
    let added = script.open().add_channels(AGENT, november(), BTreeSet::new()).await;
    assert_eq!(added, Ok(()));
    assert!(script.bodies()[0].contains(r#""UpdateExpression":"SET "#), "{:?}", script.bodies());
}
