//! Rows of the message tables: sort keys (docs/sources.md#sort-keys) and attributes
//! (docs/sources.md#message-table-schema).
//!
//! | sort key | row |
//! |---|---|
//! | a space | the channels, see `channels` |
//! | ` waiting` | the counts of what waits, see `waiting_counts` |
//! | `01:{chid}:{topic}` | the message of a topic; its replacement has another `updateid` |
//! | `02:{message id}:{chid}` | a message without a topic, in the order of time |
//! | `{chid}:{anything}` | a message in the oldest format |
//!
//! Other software writes these rows too, with a random `updateid` and a time in microseconds in
//! place of the message id. Only this program writes `accepted_at`, in milliseconds; the `updateid`
//! of such a row is the id of its message and grows with time. The id of another row is its
//! `updateid`, or a hash of its sort key. Neither is a UUIDv7, so that the id alone determines how
//! its row is found.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use state_machine::{
    Chid, Encoding, Message, MessageId, Payload, ReceiptRequest, Span, Time, Topic, Uaid, Urgency,
};

use crate::attributes::{UAID, bytes, number, number_of, text, text_of};
use crate::error::Item;

pub(crate) const SORT_KEY: &str = "chidmessageid";
/// The sort key of the channels, before all messages.
pub(crate) const CHANNELS_KEY: &str = " ";
/// The sort key of the counts of what waits, after the channels and before all messages.
pub(crate) const WAITING_KEY: &str = " waiting";
/// Distinguishes a message from its replacement.
pub(crate) const UPDATE_ID: &str = "updateid";

/// Where the sender of a message wants its receipt.
pub(crate) const RECEIPT: &str = "receipt";

/// The prefix of a topic's sort key.
pub(crate) const TOPICAL: &str = "01:";
pub(crate) const PLAIN: &str = "02:";
/// The end of the year 9999, the latest `expiry`. DynamoDB deletes rows by it; this program expires
/// its rows by `accepted_at` and `ttl`.
pub(crate) const EXPIRY_MAX_S: u64 = 253_402_300_799;

pub(crate) fn sort_key(id: MessageId, chid: Chid, topic: Option<&Topic>) -> String {
    match topic {
        Some(topic) => format!("{}{}", topics_of(chid), topic.as_str()),
        None => format!("{PLAIN}{id}:{chid}"),
    }
}

pub(crate) fn sort_key_of_message(message: &Message) -> String {
    sort_key(message.id, message.chid, message.topic.as_ref())
}

/// The prefix of the sort keys of a channel's topics.
pub(crate) fn topics_of(chid: Chid) -> String {
    format!("{TOPICAL}{chid}:")
}

/// The parts of a message's sort key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SortKey {
    pub(crate) chid: Chid,
    pub(crate) is_topical: bool,
    /// The topic, if it is valid by today's rules.
    pub(crate) topic: Option<Topic>,
}

impl SortKey {
    /// None if the sort key is none of a message.
    pub(crate) fn parse(sort_key: &str) -> Option<Self> {
        if let Some(rest) = sort_key.strip_prefix(TOPICAL) {
            let (chid, topic) = rest.split_once(':')?;
            let chid = Chid::parse(chid).ok()?;
            return Some(Self { chid, is_topical: true, topic: Topic::parse(topic).ok() });
        }
        let chid = match sort_key.strip_prefix(PLAIN) {
            Some(rest) => rest.rsplit_once(':')?.1,
            None => sort_key.split_once(':')?.0,
        };
        Some(Self { chid: Chid::parse(chid).ok()?, is_topical: false, topic: None })
    }
}

pub(crate) fn sort_key_of(item: &Item) -> &str {
    text_of(item, SORT_KEY).unwrap_or_default()
}

/// Whether this program wrote a row.
pub(crate) fn is_ours(item: &Item) -> bool {
    item.contains_key("accepted_at")
}

/// Whether this program generated an id.
pub(crate) fn is_our_id(id: MessageId) -> bool {
    id.to_bytes()[6] >> 4 == 7
}

pub(crate) fn id_of(item: &Item) -> MessageId {
    let update_id = text_of(item, UPDATE_ID).and_then(|id| MessageId::parse(id).ok());
    update_id.unwrap_or_else(|| id_of_key(sort_key_of(item)))
}

/// The FNV-1a hash of a sort key as a UUIDv8.
fn id_of_key(sort_key: &str) -> MessageId {
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for byte in sort_key.bytes() {
        hash = (hash ^ u128::from(byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
    }
    let mut bytes = hash.to_be_bytes();
    bytes[6] = 0x80 | (bytes[6] & 0x0f);
    MessageId::from_bytes(bytes)
}

pub(crate) fn encode(uaid: Uaid, message: &Message) -> Item {
    let Message { id, chid, ref topic, urgency, accepted_at, ttl, offers, .. } = *message;
    let ttl_s = ttl.0.div_ceil(1000);
    let expiry = message.kept_until().0.div_ceil(1000).min(EXPIRY_MAX_S);
    let mut item = Item::from([
        (UAID.to_owned(), text(uaid.to_string())),
        (SORT_KEY.to_owned(), text(sort_key(id, chid, topic.as_ref()))),
        (UPDATE_ID.to_owned(), text(id.to_string())),
        ("timestamp".to_owned(), number(accepted_at.as_secs())),
        ("ttl".to_owned(), number(ttl_s)),
        ("expiry".to_owned(), number(expiry)),
        ("accepted_at".to_owned(), number(accepted_at.0)),
    ]);
    if ttl_s.checked_mul(1000) != Some(ttl.0) {
        item.insert("ttl_ms".to_owned(), number(ttl.0));
    }
    if urgency != Urgency::default() {
        item.insert("urgency".to_owned(), text(urgency.as_str()));
    }
    if offers > 0 {
        item.insert("offers".to_owned(), number(u64::from(offers)));
    }
    if let Some(receipt) = &message.receipt {
        item.insert(RECEIPT.to_owned(), text(receipt.to_column()));
    }
    if let Some(payload) = &message.payload {
        item.insert("data".to_owned(), bytes(&payload.data));
        item.insert("headers".to_owned(), encode_headers(&payload.encoding));
    }
    item
}

/// The message in a row. None if it cannot be decoded.
pub(crate) fn decode(item: &Item) -> Option<Message> {
    let sort_key_parts = SortKey::parse(sort_key_of(item))?;
    let timestamp = || number_of(item, "timestamp").map(|s| s.saturating_mul(1000));
    let accepted_at = Time(number_of(item, "accepted_at").or_else(timestamp).unwrap_or(0));
    let urgency = text_of(item, "urgency").and_then(Urgency::parse);
    Some(Message {
        id: id_of(item),
        chid: sort_key_parts.chid,
        topic: sort_key_parts.topic,
        urgency: urgency.unwrap_or_default(),
        accepted_at,
        ttl: ttl(item, accepted_at),
        offers: number_of(item, "offers").map_or(0, |offers| offers.try_into().unwrap_or(u8::MAX)),
        receipt: text_of(item, RECEIPT).and_then(ReceiptRequest::from_column).map(Box::new),
        payload: payload(item)?,
    })
}

/// The TTL of a row without any expiry: the row is deleted with its month.
const NO_TTL: Span = Span(i64::MAX as u64);

fn ttl(item: &Item, accepted_at: Time) -> Span {
    if let Some(ttl_ms) = number_of(item, "ttl_ms") {
        return Span(ttl_ms);
    }
    match (number_of(item, "ttl"), number_of(item, "expiry")) {
        (Some(ttl), _) => Span::from_secs(ttl),
        (None, Some(expiry)) => Time(expiry.saturating_mul(1000)).since(accepted_at),
        (None, None) => NO_TTL,
    }
}

/// None if the payload cannot be delivered.
#[expect(clippy::option_option, reason = "a message without a payload is one")]
fn payload(item: &Item) -> Option<Option<Payload>> {
    let Some(data) = item.get("data") else { return Some(None) };
    let data = match (data.as_b(), data.as_s()) {
        (Ok(data), _) => Bytes::copy_from_slice(data.as_ref()),
        (_, Ok(text)) => Bytes::from(BASE64_URL.decode(text).ok()?),
        _ => return None,
    };
    Some(Some(Payload { data, encoding: encoding(item)? }))
}

/// Autopush stored bodies as base64url texts.
const BASE64_URL: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

fn encode_headers(encoding: &Encoding) -> aws_sdk_dynamodb::types::AttributeValue {
    let headers = match encoding {
        Encoding::Aes128Gcm => Item::from([("encoding".to_owned(), text("aes128gcm"))]),
        // Never stored here: a SimplePush version has a table of its own.
        Encoding::Plain => Item::new(),
        Encoding::AesGcm { encryption, crypto_key } => Item::from([
            ("encoding".to_owned(), text("aesgcm")),
            ("encryption".to_owned(), text(&**encryption)),
            ("crypto_key".to_owned(), text(&**crypto_key)),
        ]),
    };
    aws_sdk_dynamodb::types::AttributeValue::M(headers)
}

fn encoding(item: &Item) -> Option<Encoding> {
    let headers = item.get("headers")?.as_m().ok()?;
    match text_of(headers, "encoding")? {
        "aes128gcm" => Some(Encoding::Aes128Gcm),
        "aesgcm" => Some(Encoding::AesGcm {
            encryption: text_of(headers, "encryption")?.into(),
            crypto_key: text_of(headers, "crypto_key")?.into(),
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHID: &str = "01234567-0123-abcd-0123-0123456789ab";

    fn row(sort_key: &str) -> Item {
        Item::from([(SORT_KEY.to_owned(), text(sort_key))])
    }

    #[test]
    fn a_sort_key_of_any_version_names_its_channel() {
        let chid = Chid::parse(CHID).unwrap();
        let topic = Some(Topic::parse("a-topic").unwrap());
        let plain = SortKey { chid, is_topical: false, topic: None };
        let topical = SortKey { chid, is_topical: true, topic };
        assert_eq!(SortKey::parse(&format!("01:{CHID}:a-topic")), Some(topical));
        for sort_key in ["02:0192af:{}", "02:1793700000000000:{}", "{}:gAAAAA=:x", "{}:"] {
            assert_eq!(SortKey::parse(&sort_key.replace("{}", CHID)).as_ref(), Some(&plain));
        }
    }

    #[test]
    fn a_malformed_sort_key_is_none() {
        for wrong in ["", " ", "01:", "01:x:topic", "02:x", "02:", "03:x:y", CHID, "nonsense:x"] {
            assert_eq!(SortKey::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_row_without_an_updateid_always_has_the_same_id_and_none_of_ours() {
        let (one, other) = (format!("{CHID}:one"), format!("{CHID}:other"));
        assert_eq!(id_of(&row(&one)), id_of(&row(&one)));
        assert_ne!(id_of(&row(&one)), id_of(&row(&other)));
        assert!(!is_our_id(id_of(&row(&one))));
    }

    #[test]
    fn a_payload_in_base64_is_read_with_and_without_padding() {
        for text_form in ["_-8", "_-8="] {
            let mut item = row(&format!("{CHID}:x"));
            item.insert("data".to_owned(), text(text_form));
            item.insert("headers".to_owned(), encode_headers(&Encoding::Aes128Gcm));
            let payload = decode(&item).unwrap().payload.unwrap();
            assert_eq!(payload.data, Bytes::from_static(&[0xff, 0xef]));
        }
    }

    #[test]
    fn a_payload_that_cannot_be_handed_on_makes_no_message() {
        for (data, headers) in [("%", "aes128gcm"), ("_-8", "aesgcm128"), ("_-8", "aesgcm")] {
            let headers = Item::from([("encoding".to_owned(), text(headers))]);
            let mut item = row(&format!("{CHID}:x"));
            item.insert("data".to_owned(), text(data));
            item.insert("headers".to_owned(), aws_sdk_dynamodb::types::AttributeValue::M(headers));
            assert_eq!(decode(&item), None);
        }
    }
}
