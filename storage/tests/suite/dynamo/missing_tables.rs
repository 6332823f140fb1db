//! A missing table and one that is being created: DynamoDB has one error for both.

use std::collections::BTreeSet;

use storage::{Page, PageLimit, Store, StoreError, Stored};

use crate::dynamo::script::{Script, Step, ok, refused};
use crate::dynamo::things::*;
use crate::store_calls::StoreCalls;

fn not_found() -> Step {
    refused("ResourceNotFoundException")
}

fn in_state(status: &str) -> Step {
    ok(&format!(r#"{{"Table": {{"TableStatus": "{status}"}}}}"#))
}

fn registered() -> Step {
    ok(&format!(r#"{{"Item": {{"chids": {{"SS": ["{CHANNEL}"]}}}}}}"#))
}

#[tokio::test]
async fn channels_are_none_where_the_table_does_not_exist_or_is_being_dropped() {
    for looked_at in [not_found(), in_state("DELETING")] {
        let script = Script::new([not_found(), looked_at]);
        assert_eq!(script.open().channels(AGENT, november()).await, Ok(None));
        assert_eq!(script.asked(), ["GetItem", "DescribeTable"]);
    }
}

#[tokio::test]
async fn channels_are_not_none_while_the_table_is_being_made() {
    let looks = (0..3).flat_map(|_look| [not_found(), in_state("CREATING")]);
    let script = Script::new(looks);
    let read = script.open().channels(AGENT, november()).await;
    let Err(StoreError::Failed(told)) = read else { panic!("{read:?}") };
    assert!(told.starts_with("GetItem on table message_2026_11: ResourceNotFound"), "{told}");
    assert!(script.is_done());
}

#[tokio::test]
async fn a_start_waits_for_a_table_that_is_being_created() {
    let script = Script::new([not_found(), in_state("CREATING"), registered()]);
    let read = script.open().channels(AGENT, november()).await;
    assert_eq!(read, Ok(Some(BTreeSet::from([CHANNEL]))));
}

#[tokio::test]
async fn channels_are_an_error_if_the_table_cannot_be_described() {
    let script = Script::new([not_found(), refused("AccessDeniedException")]);
    let read = script.open().channels(AGENT, november()).await;
    let told = "DescribeTable on table message_2026_11: AccessDeniedException: a message";
    assert_eq!(read, Err(StoreError::Failed(told.to_owned())));
}

#[tokio::test]
async fn writing_needs_a_table() {
    let missing = Err(StoreError::NoSuchMonth(november()));
    let script = Script::new([not_found(), not_found()]);
    let added = script.open().add_channels(AGENT, november(), BTreeSet::from([CHANNEL])).await;
    assert_eq!(added, missing);
    let script = Script::new([registered(), not_found(), not_found()]);
    let stored = script.open().store_message(AGENT, november(), message(1)).await;
    assert_eq!(stored, Err(StoreError::NoSuchMonth(november())));
    let script = Script::new([registered(), not_found(), in_state("CREATING"), ok("{}")]);
    let stored = script.open().store_message(AGENT, november(), message(1)).await;
    assert_eq!(stored, Ok(Stored::Done));
}

#[tokio::test]
async fn a_page_is_empty_where_there_is_no_table_and_fails_while_it_is_being_made() {
    let limit = PageLimit { rows: 10, bytes: 10_000 };
    let script = Script::new([not_found(), not_found()]);
    let page = script.open().fetch_messages(AGENT, november(), None, limit, NOW).await;
    assert_eq!(page, Ok(Page::default()));
    let script = Script::new((0..3).flat_map(|_look| [not_found(), in_state("CREATING")]));
    let page = script.open().fetch_messages(AGENT, november(), None, limit, NOW).await;
    assert!(matches!(page, Err(StoreError::Failed(_))));
}
