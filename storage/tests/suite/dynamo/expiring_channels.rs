//! Channels that other software lets expire: what a connection asks for is kept, by one write where
//! it is needed.

use std::collections::BTreeSet;

use storage::{Store, StoreError, Stored};

use crate::dynamo::script::{Script, Step, ok, refused};
use crate::dynamo::things::*;

fn channels(more: &str) -> Step {
    ok(&format!(r#"{{"Item": {{"chids": {{"SS": ["{CHANNEL}"]}}{more}}}}}"#))
}

fn expiring() -> Step {
    channels(r#", "expiry": {"N": "1793700060"}"#)
}

#[tokio::test]
async fn the_expiry_of_channels_is_removed_before_they_are_returned() {
    let script = Script::new([expiring(), ok("{}")]);
    let read = script.open().channels(AGENT, november()).await;
    assert_eq!(read, Ok(Some(BTreeSet::from([CHANNEL]))));
    assert_eq!(script.asked(), ["GetItem", "UpdateItem"]);
    let body = &script.bodies()[1];
    assert!(body.contains(r#""UpdateExpression":"REMOVE expiry""#), "{body}");
    assert!(body.contains(r#""ConditionExpression":"attribute_exists(uaid)""#), "{body}");
}

#[tokio::test]
async fn channels_that_do_not_expire_cost_no_write() {
    let script = Script::new([channels("")]);
    let read = script.open().channels(AGENT, november()).await;
    assert_eq!(read, Ok(Some(BTreeSet::from([CHANNEL]))));
    assert_eq!(script.asked(), ["GetItem"]);
}

#[tokio::test]
async fn channels_whose_expiry_cannot_be_removed_are_not_returned() {
    let script = Script::new([expiring(), refused("AccessDeniedException")]);
    let told = "UpdateItem on table message_2026_11: AccessDeniedException: a message";
    let read = script.open().channels(AGENT, november()).await;
    assert_eq!(read, Err(StoreError::Failed(told.to_owned())));
}

#[tokio::test]
async fn channels_that_expired_meanwhile_are_none() {
    let script = Script::new([expiring(), refused("ConditionalCheckFailedException")]);
    assert_eq!(script.open().channels(AGENT, november()).await, Ok(None));
    assert!(script.is_done());
}

/// A push does not speak for the agent.
#[tokio::test]
async fn storing_a_message_leaves_the_channels_as_they_are() {
    let script = Script::new([expiring(), ok("{}")]);
    let stored = script.open().store_message(AGENT, november(), message(1)).await;
    assert_eq!(stored, Ok(Stored::Done));
    assert_eq!(script.asked(), ["GetItem", "PutItem"]);
}
