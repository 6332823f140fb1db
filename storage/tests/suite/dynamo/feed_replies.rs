//! What a server answers about feeds, for scripts.

use serde_json::{Value, json};
use state_machine::feed::{FeedKey, FeedName, FeedValue};

use crate::dynamo::script::{Script, Step, error, ok};

pub(crate) const KEYS_MAX: u64 = 10;

pub(crate) fn feed() -> FeedName {
    FeedName::parse("f").unwrap()
}

pub(crate) fn key(name: &str) -> FeedKey {
    FeedKey::parse(name).unwrap()
}

pub(crate) fn value(text: &str) -> FeedValue {
    FeedValue::parse(text).unwrap()
}

/// What is there of the sequence.
pub(crate) fn sequence(value: u64, version: u64, settled: u64) -> Step {
    ok(&json!({ "Item": {
        "name": { "S": "f" }, "value": n(value), "version": n(version), "keys": n(3), "settled": n(settled),
    }})
    .to_string())
}

/// The row of key `a`.
pub(crate) fn row(version: u64, number: Option<u64>) -> Step {
    let mut item = json!({ "feed": { "S": "f" }, "item": { "S": "k:a" }, "version": n(version) });
    if let Some(number) = number {
        item["number"] = n(number);
    }
    ok(&json!({ "Item": item }).to_string())
}

pub(crate) fn nothing() -> Step {
    ok("{}")
}

/// Keys that wait, with their versions.
pub(crate) fn waiting(keys: &[(&str, u64)]) -> Step {
    items(keys.iter().map(|(key, version)| {
        json!({ "feed": { "S": "f" }, "item": { "S": format!("p:{key}") }, "version": n(*version), "value": { "S": key } })
    }))
}

/// Updates, by their numbers.
pub(crate) fn numbered(updates: &[(u64, &str)]) -> Step {
    items(updates.iter().map(|(number, key)| {
        json!({
            "feed": { "S": "f" }, "item": { "S": format!("n:{number:020}") },
            "key": { "S": key }, "version": n(2), "value": { "S": key },
        })
    }))
}

fn items(items: impl Iterator<Item = Value>) -> Step {
    ok(&json!({ "Items": items.collect::<Vec<_>>() }).to_string())
}

fn n(number: u64) -> Value {
    json!({ "N": number.to_string() })
}

pub(crate) const NONE: &str = "None";
pub(crate) const CONDITION: &str = "ConditionalCheckFailed";
pub(crate) const CONFLICT: &str = "TransactionConflict";

/// A transaction that was cancelled, with the reason of each action.
pub(crate) fn cancelled(reasons: &[&str]) -> Step {
    let reasons: Vec<_> = reasons.iter().map(|reason| json!({ "Code": reason })).collect();
    let more = format!(r#","CancellationReasons":{}"#, json!(reasons));
    Step::Reply(400, error("TransactionCanceledException", &more))
}

impl Script {
    /// The requests of an operation, as JSON.
    pub(crate) fn of(&self, operation: &str) -> Vec<Value> {
        let asked = self.asked().into_iter().zip(self.bodies());
        asked
            .filter(|(asked, _)| asked == operation)
            .map(|(_, body)| serde_json::from_str(&body).unwrap())
            .collect()
    }

    /// The tokens of the transactions.
    pub(crate) fn tokens(&self) -> Vec<String> {
        let transactions = self.of("TransactWriteItems");
        transactions.iter().map(|body| body["ClientRequestToken"].to_string()).collect()
    }
}
