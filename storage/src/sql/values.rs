//! The values of parameters, and the rows that are written.

use std::borrow::Cow;

use state_machine::{Chid, Encoding, Message, MessageId, NodeId, Time, Topic, Uaid, Urgency};

use crate::feeds::{FeedKey, FeedName, FeedState, FeedValue};
use crate::notifications::Notification;
use crate::receipts::ExpectedReceipt;
use crate::record_row::RecordRow;
use crate::registration;
use crate::rules::feed_rows::KeyRow;

/// A value. Its variant is the type of the parameter in PostgreSQL, also if it is null.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value<'a> {
    Id(Option<[u8; 16]>),
    /// Of 16 bits in PostgreSQL.
    Small(Option<i16>),
    /// Of 32 bits in PostgreSQL.
    Medium(i32),
    Integer(Option<i64>),
    Flag(bool),
    Text(Option<Cow<'a, str>>),
    /// A text that may have the character 0: bytes in PostgreSQL.
    AnyText(Option<&'a str>),
    Bytes(Option<Cow<'a, [u8]>>),
}

/// A number is too large for a column, and would be assigned twice if it were saturated.
#[derive(Debug, thiserror::Error)]
#[error("a number is too large")]
pub struct TooLarge;

/// The values of a statement, in order.
#[macro_export]
macro_rules! values {
    ($($value:expr),* $(,)?) => { vec![$($crate::sql::values::Value::from($value)),*] };
}
pub use values;

macro_rules! value_types {
    ($($rust:ty => $variant:ident(|$value:ident| $of:expr);)*) => {$(
        impl<'a> From<$rust> for Value<'a> {
            fn from($value: $rust) -> Self {
                Self::$variant($of)
            }
        }
    )*};
}

value_types! {
    Uaid => Id(|uaid| Some(uaid.0));
    Option<Uaid> => Id(|uaid| uaid.map(|uaid| uaid.0));
    Chid => Id(|chid| Some(chid.0));
    Option<Chid> => Id(|chid| chid.map(|chid| chid.0));
    MessageId => Id(|id| Some(id.to_bytes()));
    Option<MessageId> => Id(|id| id.map(MessageId::to_bytes));
    Urgency => Small(|urgency| Some(urgency_column(urgency)));
    Option<i16> => Small(|number| number);
    i64 => Integer(|number| Some(number));
    u64 => Integer(|number| Some(to_i64(number)));
    Time => Integer(|time| Some(to_i64(time.0)));
    Option<Time> => Integer(|time| time.map(|time| to_i64(time.0)));
    bool => Flag(|flag| flag);
    String => Text(|text| Some(Cow::Owned(text)));
    Option<String> => Text(|text| text.map(Cow::Owned));
    &'a str => Text(|text| Some(Cow::Borrowed(text)));
    Option<&'a str> => Text(|text| text.map(Cow::Borrowed));
    &'a FeedName => Text(|name| Some(Cow::Borrowed(name.as_str())));
    &'a FeedKey => Text(|key| Some(Cow::Borrowed(key.as_str())));
    Option<&'a FeedValue> => AnyText(|value| value.map(FeedValue::as_str));
    Option<&'a [u8]> => Bytes(|bytes| bytes.map(Cow::Borrowed));
    Option<[u8; 8]> => Bytes(|bytes| bytes.map(|bytes| Cow::Owned(bytes.to_vec())));
}

/// Saturates: the integers of both are signed.
pub fn to_i64(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn exact<'a>(number: u64) -> Result<Value<'a>, TooLarge> {
    Ok(Value::from(i64::try_from(number).map_err(|_| TooLarge)?))
}

/// The columns of a record, and whether one that is there is replaced.
pub fn record(record: &RecordRow, may_replace: bool) -> Vec<Value<'_>> {
    values![
        record.uaid,
        record.router_type.as_str(),
        record.node.as_ref().map(NodeId::as_str),
        record.connected_at,
        record.last_connect.0,
        record.curmonth.map(|month| month.to_string()),
        record.oldmonth.map(|month| month.to_string()),
        record.recipient.as_ref().map(|recipient| registration::encode(recipient).to_string()),
        may_replace,
    ]
}

/// The columns of a message but its offers.
pub fn message(uaid: Uaid, message: &Message) -> Vec<Value<'_>> {
    let (encoding, encryption, crypto_key) = match message.payload.as_ref().map(|it| &it.encoding) {
        // A SimplePush version has a table of its own.
        None | Some(Encoding::Plain) => (None, None, None),
        Some(Encoding::Aes128Gcm) => (Some(AES128GCM), None, None),
        Some(Encoding::AesGcm { encryption, crypto_key }) => {
            (Some(AESGCM), Some(&**encryption), Some(&**crypto_key))
        }
    };
    values![
        uaid,
        message.id,
        message.kept_until(),
        message.chid,
        message.topic.as_ref().map(Topic::as_str),
        message.urgency,
        message.accepted_at,
        message.ttl.0,
        encoding,
        encryption,
        crypto_key,
        message.payload.as_ref().map(|payload| &*payload.data),
        message.receipt.as_ref().map(|receipt| receipt.to_column()),
    ]
}

pub(super) const AES128GCM: i16 = 1;
pub(super) const AESGCM: i16 = 2;

pub(super) fn urgency_column(urgency: Urgency) -> i16 {
    match urgency {
        Urgency::VeryLow => 0,
        Urgency::Low => 1,
        Urgency::Normal => 2,
        Urgency::High => 3,
    }
}

/// A version is eight bytes, big-endian: the integers of both are signed.
pub fn notification(
    uaid: Uaid,
    Notification { chid, version, data }: &Notification,
) -> Vec<Value<'_>> {
    let version = Value::from(Some(version.to_be_bytes()));
    vec![uaid.into(), (*chid).into(), version, Value::AnyText(data.as_deref())]
}

pub(super) fn feed_state(feed: &FeedState) -> Result<Vec<Value<'_>>, TooLarge> {
    let sequence = feed.sequence;
    let numbers = [sequence.value.0, sequence.version, sequence.keys];
    let forgotten = [sequence.horizon.0, sequence.forgotten.0];
    let mut row = values![&feed.name];
    for number in numbers.into_iter().chain(forgotten) {
        row.push(exact(number)?);
    }
    row.push(match sequence.mark {
        Some(mark) => exact(mark.number.0)?,
        None => Value::Integer(None),
    });
    row.push(sequence.mark.map(|mark| mark.at).into());
    Ok(row)
}

/// Feed and key, with the version and the number of a row.
pub(super) fn feed_key<'a>(
    feed: &'a FeedName,
    key: &'a FeedKey,
    KeyRow { version, number }: KeyRow,
) -> Result<Vec<Value<'a>>, TooLarge> {
    let number = match number {
        Some(number) => exact(number.0)?,
        None => Value::Integer(None),
    };
    Ok(vec![feed.into(), key.into(), exact(version.0)?, number])
}

pub(super) fn expected_receipt(expected: &ExpectedReceipt) -> Vec<Value<'_>> {
    values![&expected.request.subscription, &expected.request.key, expected.deadline]
}
