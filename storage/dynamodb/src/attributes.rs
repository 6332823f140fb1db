//! Conversions between attributes of items and values.

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;

use serde_json::Value;
use state_machine::Uaid;

use crate::error::Item;

pub(crate) const UAID: &str = "uaid";

/// The key of a user agent's item, if the table has no sort key.
pub(crate) fn uaid_key(uaid: Uaid) -> Item {
    Item::from([(UAID.to_owned(), text(uaid.to_string()))])
}

pub(crate) fn text(text: impl Into<String>) -> AttributeValue {
    AttributeValue::S(text.into())
}

pub(crate) fn number(number: impl Into<u64>) -> AttributeValue {
    AttributeValue::N(number.into().to_string())
}

pub(crate) fn bytes(bytes: &[u8]) -> AttributeValue {
    AttributeValue::B(Blob::new(bytes))
}

/// A map of JSON texts. Other values of the JSON are left out.
pub(crate) fn map_of_texts(json: &Value) -> AttributeValue {
    let texts = json.as_object().into_iter().flatten();
    let texts = texts.filter_map(|(name, value)| Some((name.clone(), text(value.as_str()?))));
    AttributeValue::M(texts.collect())
}

/// An attribute as JSON. Binary values and sets are null.
pub(crate) fn json(value: &AttributeValue) -> Value {
    match value {
        AttributeValue::S(text) => Value::from(text.as_str()),
        AttributeValue::N(number) => serde_json::from_str(number).unwrap_or_default(),
        AttributeValue::Bool(flag) => Value::from(*flag),
        AttributeValue::L(list) => list.iter().map(json).collect(),
        AttributeValue::M(map) => {
            map.iter().map(|(name, value)| (name.clone(), json(value))).collect()
        }
        _ => Value::Null,
    }
}

/// The text of an attribute; none if it is missing or of another type.
pub(crate) fn text_of<'a>(item: &'a Item, name: &str) -> Option<&'a str> {
    item.get(name)?.as_s().ok().map(String::as_str)
}

/// The whole number of an attribute; none if it is missing or of another type.
pub(crate) fn number_of(item: &Item, name: &str) -> Option<u64> {
    item.get(name)?.as_n().ok()?.parse().ok()
}
