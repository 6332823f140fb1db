//! Nodes that change the same receipts: the orders that the models of rules found (`rule_models::receipts`).

use state_machine::{AckCode, Message, Span};
use storage::{ExpiredReceipts, ReceiptTables, SettledMessages, Store, Stored};

use crate::dynamo::script::{Script, Step, error, ok, refused};
use crate::dynamo::things::*;
use crate::names::{subscription, with_receipt};
use crate::store_calls::StoreCalls;

fn wanting(number: u32) -> Message {
    with_receipt(topical(number), subscription())
}

/// The row of a message as DynamoDB answers it.
fn row(message: &Message) -> Step {
    let Message { id, chid, .. } = message;
    let receipt = message.receipt.as_ref().unwrap().to_column();
    ok(&format!(
        r#"{{"Item": {{"uaid": {{"S": "{AGENT}"}}, "chidmessageid": {{"S": "01:{chid}:a-topic"}},
            "updateid": {{"S": "{id}"}}, "accepted_at": {{"N": "{}"}}, "timestamp": {{"N": "1"}},
            "ttl": {{"N": "60"}}, "receipt": {{"S": "{receipt}"}}}}}}"#,
        message.accepted_at.0
    ))
}

/// A transaction that is refused by the condition of its action at this place.
fn cancelled(at: usize, of: usize) -> Step {
    let reasons = (0..of).map(|action| match action == at {
        true => r#"{"Code": "ConditionalCheckFailed"}"#,
        false => r#"{"Code": "None"}"#,
    });
    let reasons = reasons.collect::<Vec<_>>().join(",");
    let more = format!(r#","CancellationReasons":[{reasons}]"#);
    Step::Reply(400, error("TransactionCanceledException", &more))
}

/// The second message takes the row between the cancel of the first one's receipt and the write of the third. Its receipt
/// would stay expected, and say expired of a message that was replaced.
#[tokio::test]
async fn a_message_replaces_only_the_one_whose_receipt_it_has_cancelled() {
    let [first, second, third] = [1, 2, 3].map(wanting);
    let channels = ok(&format!(
        r#"{{"Item": {{"uaid": {{"S": "{AGENT}"}}, "chidmessageid": {{"S": " "}},
            "chids": {{"SS": ["{CHANNEL}"]}}}}}}"#
    ));
    let taken = || refused("ConditionalCheckFailedException");
    let cancel = || ok("{}");
    let steps =
        [[channels, taken(), row(&first), cancel()], [taken(), row(&second), cancel(), ok("{}")]];
    let script = Script::new(steps.into_iter().flatten());
    let stored = script.open().store_message(AGENT, november(), third).await;
    assert_eq!(stored, Ok(Stored::Done));
    let put = ["PutItem", "GetItem", "TransactWriteItems"];
    let asked: Vec<_> = ["GetItem"].into_iter().chain(put).chain(put).chain(["PutItem"]).collect();
    assert_eq!(script.asked(), asked);
    let bodies = script.bodies();
    for (put, replaced) in [(4, &first), (7, &second)] {
        assert!(bodies[put].contains(r#""ConditionExpression":"updateid = :id""#), "{put}");
        assert!(bodies[put].contains(&format!(r#":id":{{"S":"{}"}}"#, replaced.id)), "{put}");
    }
}

/// An ack writes a receipt between the removal of the keys and that of the sequence. Without its sequence nothing would ever
/// remove it.
#[tokio::test]
async fn a_subscription_that_an_ack_writes_while_it_is_removed_is_left_to_the_next_call() {
    let subscription = subscription();
    let ended =
        format!(r#"{{"Items": [{{"name": {{"S": "{subscription}"}}, "keys": {{"N": "1"}}}}]}}"#);
    let none_due = (0..16).map(|_| ok(r#"{"Items": []}"#));
    let steps = none_due.chain([ok(&ended), ok(r#"{"Items": []}"#), cancelled(0, 1)]);
    let script = Script::new(steps);
    let now = NOW + Span::from_secs(2 * 86_400);
    let expired = script.open().expire_receipts(now).await;
    assert_eq!(expired, Ok(ExpiredReceipts { is_more: true, ..ExpiredReceipts::default() }));
    let removal = &script.bodies()[18];
    assert!(removal.contains(r##""ConditionExpression":"#keys = :keys""##), "{removal}");
}

/// The subscription is removed after the ack has read that it exists.
#[tokio::test]
async fn an_ack_does_not_make_an_ended_subscription_again() {
    let acked = wanting(1);
    let sequence = ok(&format!(
        r#"{{"Item": {{"name": {{"S": "{}"}}, "value": {{"N": "0"}}, "version": {{"N": "0"}},
            "settled": {{"N": "0"}}, "keys": {{"N": "1"}}}}}}"#,
        subscription()
    ));
    let none = || ok("{}");
    let steps = [
        [row(&acked), none(), cancelled(0, 3), sequence],
        [none(), cancelled(2, 3), none(), none()],
    ];
    let script = Script::new(steps.into_iter().flatten());
    let acked = vec![(acked.key(), AckCode::Delivered)];
    let settled = script.open().settle_messages(AGENT, vec![november()], acked).await;
    assert_eq!(settled, Ok(SettledMessages { deleted: 1, subscriptions: Vec::new() }));
    let transaction = ["GetItem", "TransactWriteItems", "GetItem"];
    let asked: Vec<_> = ["GetItem"]
        .into_iter()
        .chain(transaction)
        .chain(transaction)
        .chain(["DeleteItem"])
        .collect();
    assert_eq!(script.asked(), asked);
    assert!(script.bodies()[5].contains(r#""ConditionExpression":"attribute_exists(#keys)""#));
}
