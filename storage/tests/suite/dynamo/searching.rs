//! The cost of deleting messages whose sort key is unknown: an agent can invent any number of them.

use crate::dynamo::script::{Script, Step, ok};
use crate::dynamo::things::*;
use crate::store_calls::StoreCalls;
use state_machine::{Chid, MessageId, MessageKey};

/// A message as other software names it: with a random id.
fn foreign(number: u32) -> MessageKey {
    let id = MessageId::parse(&format!("{number:08x}1e5b4a0e8c3d6a7b8c9d0e1f")).unwrap();
    MessageKey { id, chid: CHANNEL, topic: None }
}

/// A message of this program whose topic is not given.
fn forgotten_topic(number: u32, chid: Chid) -> MessageKey {
    MessageKey { chid, topic: None, ..topical(number).key() }
}

/// A page of rows of other software; `goes_on` where there are more behind it.
fn page(rows: &[MessageKey], goes_on: bool) -> Step {
    let row = |row: &MessageKey| {
        let MessageKey { id, chid, .. } = row;
        format!(
            r#"{{"uaid": {{"S": "{AGENT}"}}, "chidmessageid": {{"S": "{chid}:{id}"}}, "updateid": {{"S": "{id}"}}}}"#
        )
    };
    let rows: Vec<_> = rows.iter().map(row).collect();
    let last = format!(
        r#","LastEvaluatedKey": {{"uaid": {{"S": "{AGENT}"}}, "chidmessageid": {{"S": "x"}}}}"#
    );
    ok(&format!(r#"{{"Items": [{}]{}}}"#, rows.join(","), if goes_on { &last } else { "" }))
}

#[tokio::test]
async fn many_made_up_messages_are_one_search_of_each_month() {
    let pages = || [page(&[foreign(1000)], true), page(&[], false)];
    let script = Script::new(pages().into_iter().chain(pages()));
    let made_up = (0..120).map(foreign).chain((0..120).map(|n| forgotten_topic(n, CHANNEL)));
    let months = vec![november(), december()];
    let deleted = script.open().delete_messages(AGENT, months, made_up.collect()).await;
    assert_eq!(deleted, Ok(0));
    assert_eq!(script.asked(), ["Query"; 4]);
    for body in script.bodies() {
        assert!(body.contains(r#"chidmessageid > :channels"#), "{body}");
        assert!(
            body.contains(r#""ProjectionExpression":"uaid, chidmessageid, updateid""#),
            "{body}"
        );
    }
}

#[tokio::test]
async fn a_search_ends_where_all_are_found() {
    let all: Vec<_> = (0..3).map(foreign).collect();
    let found = page(&[foreign(7), foreign(0), foreign(1), foreign(2)], true);
    let script = Script::new([found, ok("{}"), ok("{}"), ok("{}")]);
    let deleted = script.open().delete_messages(AGENT, vec![november()], all).await;
    assert_eq!(deleted, Ok(3));
    assert_eq!(script.asked(), ["Query", "DeleteItem", "DeleteItem", "DeleteItem"]);
}

#[tokio::test]
async fn messages_with_a_known_sort_key_are_not_searched() {
    let script = Script::new([ok("{}"), ok("{}")]);
    let ours = references([message(1), topical(2)]);
    assert_eq!(script.open().delete_messages(AGENT, vec![november()], ours).await, Ok(2));
    assert_eq!(script.asked(), ["DeleteItem"; 2]);
}

/// What is left of 64 MB of rows is found when some of them were acked.
#[tokio::test]
async fn a_search_is_bounded_and_deletes_the_found_rows() {
    let found_last = (0..63).map(|_page| page(&[], true)).chain([page(&[foreign(1)], true)]);
    let script = Script::new(found_last.chain([ok("{}")]));
    let sought = vec![foreign(1), foreign(2)];
    let deleted = script.open().delete_messages(AGENT, vec![november()], sought).await;
    assert_eq!(deleted, Ok(1));
    assert_eq!(script.asked().len(), 65);
    assert_eq!(script.asked()[64], "DeleteItem");
}

#[tokio::test]
async fn topics_are_sought_among_topics_and_where_it_can_be_those_of_their_channel() {
    let other = Chid([0xc1; 16]);
    for (second, prefix) in [(CHANNEL, format!("01:{CHANNEL}:")), (other, "01:".to_owned())] {
        let script = Script::new([page(&[], false)]);
        let sought = vec![forgotten_topic(1, CHANNEL), forgotten_topic(2, second)];
        let deleted = script.open().delete_messages(AGENT, vec![november()], sought).await;
        assert_eq!(deleted, Ok(0));
        let bodies = script.bodies();
        let [body] = &bodies[..] else { panic!("{bodies:?}") };
        assert!(body.contains(&format!(r#"":prefix":{{"S":"{prefix}"}}"#)), "{body}");
    }
}
