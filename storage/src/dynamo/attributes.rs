//! Conversions between attributes of items and values.

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;

use state_machine::Uaid;

use super::error::Item;

pub(super) const UAID: &str = "uaid";

/// The key of a user agent's item, if the table has no sort key.
pub(super) fn uaid_key(uaid: Uaid) -> Item {
    Item::from([(UAID.to_owned(), text(uaid.to_string()))])
}

pub(super) fn text(text: impl Into<String>) -> AttributeValue {
    AttributeValue::S(text.into())
}

pub(super) fn number(number: impl Into<u64>) -> AttributeValue {
    AttributeValue::N(number.into().to_string())
}

pub(super) fn bytes(bytes: &[u8]) -> AttributeValue {
    AttributeValue::B(Blob::new(bytes))
}

/// The text of an attribute; none if it is missing or of another type.
pub(super) fn text_of<'a>(item: &'a Item, name: &str) -> Option<&'a str> {
    item.get(name)?.as_s().ok().map(String::as_str)
}

/// The whole number of an attribute; none if it is missing or of another type.
pub(super) fn number_of(item: &Item, name: &str) -> Option<u64> {
    item.get(name)?.as_n().ok()?.parse().ok()
}
