use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::fuzz::fuzz;

const ID: &str = "0190a4a3b0007000800000000000000f";
const CHID: &str = "01234567-0123-abcd-0123-0123456789ab";

fn sample(encoding: Encoding) -> Message {
    Message {
        id: MessageId::parse(ID).unwrap(),
        chid: Chid::parse(CHID).unwrap(),
        topic: Some(Topic::parse("upd-1_x").unwrap()),
        urgency: Urgency::High,
        accepted_at: Time(1_796_000_000_123),
        ttl: Span(60_000),
        offers: 0,
        receipt: None,
        payload: Some(Payload { data: Bytes::from_static(b"\xfb\xffdata"), encoding }),
    }
}

fn old_encoding() -> Encoding {
    Encoding::AesGcm { encryption: "salt=\"a\\b\"".into(), crypto_key: "dh=\u{e4}".into() }
}

fn with(changes: &Value) -> Vec<u8> {
    let mut json: Value = serde_json::from_slice(&to_bytes(&sample(old_encoding()))).unwrap();
    for (name, value) in changes.as_object().unwrap() {
        json[name] = value.clone();
    }
    json.to_string().into_bytes()
}

fn without(name: &str) -> Vec<u8> {
    let mut json: Value = serde_json::from_slice(&to_bytes(&sample(old_encoding()))).unwrap();
    json.as_object_mut().unwrap().remove(name).unwrap();
    json.to_string().into_bytes()
}

#[test]
fn a_message_has_the_field_names_of_a_notification() {
    let json: Value = serde_json::from_slice(&to_bytes(&sample(old_encoding()))).unwrap();
    assert_eq!(
        json,
        json!({
            "channelID": CHID, "version": ID, "topic": "upd-1_x", "urgency": "high",
            "accepted_at": 1_796_000_000_123_u64, "ttl_ms": 60_000, "data": "-_9kYXRh",
            "headers":
                {"encoding": "aesgcm", "encryption": "salt=\"a\\b\"", "crypto_key": "dh=\u{e4}"}
        })
    );
}

#[test]
fn a_message_without_payload_has_neither_data_nor_headers() {
    let message = Message { topic: None, payload: None, ..sample(Encoding::Aes128Gcm) };
    let json: Value = serde_json::from_slice(&to_bytes(&message)).unwrap();
    let mut names: Vec<&String> = json.as_object().unwrap().keys().collect();
    names.sort();
    assert_eq!(names, ["accepted_at", "channelID", "ttl_ms", "urgency", "version"]);
    assert_eq!(from_bytes(&to_bytes(&message)).unwrap(), message);
}

#[test]
fn an_unknown_field_of_any_type_is_ignored() {
    let message = sample(old_encoding());
    for value in [json!(1), json!("text"), json!(null), json!([[1]]), json!({"a": {"b": true}})] {
        assert_eq!(from_bytes(&with(&json!({"more": value}))).unwrap(), message);
        let mut json: Value = serde_json::from_slice(&to_bytes(&message)).unwrap();
        json["headers"]["more"] = value;
        assert_eq!(from_bytes(json.to_string().as_bytes()).unwrap(), message);
    }
}

#[test]
fn a_missing_or_repeated_field_is_refused() {
    let malformed = |bytes: &[u8]| matches!(from_bytes(bytes), Err(WireMessageError::Malformed(_)));
    for name in ["channelID", "version", "urgency", "accepted_at", "ttl_ms"] {
        assert!(malformed(&without(name)), "{name}");
    }
    let text = String::from_utf8(to_bytes(&sample(Encoding::Aes128Gcm))).unwrap();
    assert!(malformed(text.replacen('{', "{\"ttl_ms\":1,", 1).as_bytes()));
    for garbage in ["", "{}", "[]", "null", &text[..text.len() - 1], &(text.clone() + "x")] {
        assert!(malformed(garbage.as_bytes()), "{garbage}");
    }
    let deep = "[".repeat(100_000);
    assert!(malformed(deep.as_bytes()));
    assert!(malformed(text.replace("upd", "\u{fffd}").replace('\u{fffd}', "\\ud800").as_bytes()));
    assert!(malformed(&[text.as_bytes(), b"\xff"].concat()));
}

#[test]
fn an_invalid_value_is_refused_with_the_name_of_its_field() {
    let long = "a".repeat(CRYPTO_HEADER_MAX_BYTES + 1);
    let headers = |encryption: &str, crypto_key: &str| {
        json!({"headers":
            {"encoding": "aesgcm", "encryption": encryption, "crypto_key": crypto_key}})
    };
    for (field, changes) in [
        ("channelID", json!({"channelID": CHID.to_uppercase()})),
        ("channelID", json!({"channelID": ""})),
        ("version", json!({"version": "1"})),
        ("topic", json!({"topic": ""})),
        ("topic", json!({"topic": "upd="})),
        ("topic", json!({"topic": "a".repeat(33)})),
        ("urgency", json!({"urgency": "urgent"})),
        ("data", json!({"data": "-_9kYXR"})),
        ("data", json!({"data": "-_9kYXRhYQ=="})),
        ("data", json!({"data": "-_9k YXRh"})),
        ("data", json!({"data": "+/9kYXRh"})),
        ("data", json!({"data": null})),
        ("headers", json!({"headers": null})),
        ("headers", json!({"headers": {"encoding": "aesgcm"}})),
        ("headers", json!({"headers": {"encoding": "gzip"}})),
        (
            "headers",
            json!({"headers":
            {"encoding": "aes128gcm", "encryption": "a", "crypto_key": "b"}}),
        ),
        ("encryption", headers(&long, "b")),
        ("crypto_key", headers("a", &long)),
    ] {
        match from_bytes(&with(&changes)) {
            Err(WireMessageError::Field(name)) => assert_eq!(name, field, "{changes}"),
            other => panic!("{changes}: {other:?}"),
        }
    }
}

#[test]
fn the_largest_message_has_the_maximum_size() {
    let worst = |count| "\u{1}".repeat(count).into_boxed_str();
    for payload_bytes in [4096, 4097, 4098, 5630] {
        let message = Message {
            topic: Some(Topic::parse(&"t".repeat(32)).unwrap()),
            urgency: Urgency::VeryLow,
            accepted_at: Time(u64::MAX),
            ttl: Span(u64::MAX),
            payload: Some(Payload {
                data: vec![0; payload_bytes].into(),
                encoding: Encoding::AesGcm {
                    encryption: worst(CRYPTO_HEADER_MAX_BYTES),
                    crypto_key: worst(CRYPTO_HEADER_MAX_BYTES),
                },
            }),
            ..sample(Encoding::Aes128Gcm)
        };
        let json = to_bytes(&message);
        let (length, max) = (json.len(), bytes_max(payload_bytes));
        assert!((max - 256..=max).contains(&length), "{length} of {max}");
        assert_eq!(from_bytes(&json).unwrap(), message);
    }
}

fn encodings() -> impl Strategy<Value = Encoding> {
    let text = || prop_oneof!["\\PC{0,40}", prop::string::string_regex("(?s).{0,40}").unwrap()];
    let old = (text(), text()).prop_map(|(encryption, crypto_key)| Encoding::AesGcm {
        encryption: encryption.into(),
        crypto_key: crypto_key.into(),
    });
    prop_oneof![Just(Encoding::Aes128Gcm), old]
}

prop_compose! {
    fn messages()(
        id in any::<[u8; 16]>(),
        chid in any::<[u8; 16]>(),
        topic in prop::option::of("[A-Za-z0-9_-]{1,32}"),
        urgency in 0..Urgency::ALL.len(),
        times in any::<(u64, u64)>(),
        payload in prop::option::of((prop::collection::vec(any::<u8>(), 0..300), encodings())),
    ) -> Message {
        Message {
            id: MessageId::from_bytes(id),
            chid: Chid(chid),
            topic: topic.map(|topic| Topic::parse(&topic).unwrap()),
            urgency: Urgency::ALL[urgency],
            accepted_at: Time(times.0),
            ttl: Span(times.1),
            offers: 0,
            receipt: None,
            payload: payload.map(|(data, encoding)| Payload { data: data.into(), encoding }),
        }
    }
}

proptest! {
    #[test]
    fn every_message_is_parsed_as_it_was_written(message in messages()) {
        prop_assert_eq!(from_bytes(&to_bytes(&message)).unwrap(), message);
    }
}

#[test]
fn no_hostile_message_panics_and_what_is_parsed_can_be_written() {
    let bare = Message { topic: None, payload: None, ..sample(Encoding::Aes128Gcm) };
    let samples = [sample(Encoding::Aes128Gcm), sample(old_encoding()), bare];
    fuzz("peer_messages", &samples.each_ref().map(to_bytes), |bytes| {
        if let Ok(message) = from_bytes(bytes) {
            assert_eq!(from_bytes(&to_bytes(&message)).unwrap(), message);
        }
    });
}
