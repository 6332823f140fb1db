//! Valid and invalid frames of user agents.

use base64::Engine;

use super::*;
use crate::fuzz::fuzz;
use crate::wire::BASE64;

/// The base point of P-256, a valid key.
const KEY: &str =
    "BGsX0fLhLEJH-Lzm5WOkQPJ3A32BLeszoPShOUXYmMKWT-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU";
const CHID: &str = "01234567-0123-abcd-0123-0123456789ab";
const VERSION: &str = "01930000000070008000000000000000";

fn parse(text: &str) -> Result<ClientMessage, InvalidFrame> {
    ClientMessage::parse(text)
}

fn versions(all: &[(&str, &str)]) -> Versions {
    let parsed = |&(id, version): &(&str, &str)| {
        (FeedKey::parse(id).unwrap(), FeedValue::parse(version).unwrap())
    };
    all.iter().map(parsed).collect()
}

/// What a `broadcast_subscribe` with these broadcasts names.
fn subscribed(broadcasts: &str) -> Versions {
    let text = format!(r#"{{"messageType":"broadcast_subscribe","broadcasts":{broadcasts}}}"#);
    match parse(&text) {
        Ok(ClientMessage::BroadcastSubscribe { broadcasts }) => broadcasts,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn hello_takes_a_uaid_in_both_forms_and_forgives_a_wrong_one() {
    let uaid = Uaid::parse(CHID).unwrap();
    for text in [CHID.to_owned(), uaid.to_string()] {
        let hello = format!(
            r#"{{"messageType":"hello","uaid":"{text}","broadcasts":{{"a":"b"}},"use_webpush":true,"channelIDs":["x"]}}"#
        );
        let broadcasts = versions(&[("a", "b")]);
        assert_eq!(
            parse(&hello),
            Ok(ClientMessage::Hello { uaid: Some(uaid), broadcasts, use_webpush: true })
        );
    }
    for wrong in ["\"\"", "\"xyz\"", "5", "null", "{\"a\":1}", "[1,[2]]", "true", "1.5", "-1"] {
        let hello = format!(r#"{{"uaid":{wrong},"messageType":"hello"}}"#);
        let broadcasts = Versions::new();
        assert_eq!(
            parse(&hello),
            Ok(ClientMessage::Hello { uaid: None, broadcasts, use_webpush: false })
        );
    }
}

#[test]
fn broadcasts_are_read_with_what_the_agent_has_of_them() {
    let monitor = r#"{"remote-settings/monitor_changes":"\"0\"","b":"v"}"#;
    let expected = versions(&[("remote-settings/monitor_changes", "\"0\""), ("b", "v")]);
    assert_eq!(subscribed(monitor), expected);
    assert_eq!(subscribed(r#"{"a":"1","a":"2"}"#), versions(&[("a", "2")]), "the last one counts");
    assert_eq!(subscribed(r#"{"\u0061":"\n"}"#), versions(&[("a", "\n")]));
}

#[test]
fn a_version_that_is_no_text_is_the_empty_one() {
    for wrong in ["5", "null", "true", "1.5", "-1", "[\"v\"]", "{\"a\":{\"b\":[]}}"] {
        assert_eq!(subscribed(&format!(r#"{{"a":{wrong}}}"#)), versions(&[("a", "")]), "{wrong}");
    }
}

#[test]
fn broadcasts_that_are_no_object_are_none() {
    for wrong in ["5", "null", "true", "1.5", "-1", "\"a\"", "[\"a\",[{}]]", "{}"] {
        assert_eq!(subscribed(wrong), Versions::new(), "{wrong}");
    }
    let bare = parse(r#"{"messageType":"broadcast_subscribe"}"#);
    assert_eq!(bare, Ok(ClientMessage::BroadcastSubscribe { broadcasts: Versions::new() }));
}

#[test]
fn ids_that_no_broadcast_can_have_are_left_out() {
    let (fits, long) = ("x".repeat(FeedKey::BYTES_MAX), "é".repeat(FeedKey::BYTES_MAX / 2 + 1));
    let said = format!(r#"{{"":"1","a\nb":"2","{long}":"3","{fits}":"4"}}"#);
    assert_eq!(subscribed(&said), versions(&[(&fits, "4")]));
}

#[test]
fn an_ack_keeps_the_updates_that_name_a_message() {
    let ack = format!(
        r#"{{"messageType":"ack","updates":[{{"channelID":"{CHID}","version":"{VERSION}","code":100}},{{"channelID":"garbage","version":"{VERSION}"}},{{"version":"v"}},{{"version":5}},{{}}]}}"#
    );
    let (chid, id) = (CHID.parse().unwrap(), VERSION.parse().unwrap());
    let update = AckUpdate { chid, id, code: Some(100) };
    assert_eq!(parse(&ack), Ok(ClientMessage::Ack { updates: vec![update] }));
}

#[test]
fn an_ack_of_garbage_acks_nothing() {
    for updates in ["null", "\"all\"", "{}", "5", "[5,null,\"x\",[1],{\"a\":{}}]"] {
        let ack = format!(r#"{{"messageType":"ack","updates":{updates}}}"#);
        assert_eq!(parse(&ack), Ok(ClientMessage::Ack { updates: vec![] }), "{updates}");
    }
}

#[test]
fn a_register_key_is_read_with_and_without_padding() {
    let key = VapidKey::parse(KEY);
    assert!(key.is_some());
    for text in [format!("{KEY}="), KEY.to_owned()] {
        let chid = CHID.parse().unwrap();
        let expected = Ok(ClientMessage::Register { chid, key: key.clone() });
        assert_eq!(parse(&register_with(&text)), expected);
    }
}

#[test]
fn a_register_key_that_is_not_a_point_on_the_curve_is_answered_400() {
    let point = VapidKey::parse(KEY).unwrap();
    let with = |at: usize, byte: u8| {
        let mut other = *point.as_bytes();
        other[at] = byte;
        BASE64.encode(other)
    };
    let compressed = BASE64.encode([&[3], &point.as_bytes()[1..33]].concat());
    for text in [
        with(64, point.as_bytes()[64] ^ 1),
        with(0, 5),
        with(0, 7),
        compressed,
        BASE64.encode([4; 65]),
        BASE64.encode([&[4], [0xFF; 64].as_slice()].concat()),
        BASE64.encode([&[4], [0; 64].as_slice()].concat()),
        KEY[1..].to_owned(),
        "AAAA".to_owned(),
        "not base64!".to_owned(),
        String::new(),
    ] {
        match parse(&register_with(&text)) {
            Err(InvalidFrame::BadField { message_type, channel_id, status, .. }) => {
                assert_eq!(
                    (message_type, channel_id.as_deref(), status),
                    ("register", Some(CHID), 400)
                );
            }
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn a_register_key_of_another_type_is_answered_400_and_null_is_no_key() {
    for key in ["5", "[]", "{}", "true"] {
        let text = register_with(KEY).replace(&format!("\"{KEY}\""), key);
        let refused = parse(&text);
        assert!(matches!(refused, Err(InvalidFrame::BadField { status: 400, .. })), "{refused:?}");
    }
    let text = register_with(KEY).replace(&format!("\"{KEY}\""), "null");
    assert!(matches!(parse(&text), Ok(ClientMessage::Register { key: None, .. })));
}

fn register_with(key: &str) -> String {
    format!(r#"{{"messageType":"register","channelID":"{CHID}","key":"{key}"}}"#)
}

#[test]
fn a_bad_field_is_reported_with_its_channel() {
    let bad = |text: &str| match parse(text) {
        Err(InvalidFrame::BadField { message_type, channel_id, .. }) => {
            (message_type, channel_id.map(String::from))
        }
        other => panic!("{other:?}"),
    };
    let garbage = r#"{"messageType":"register","channelID":"GARBAGE"}"#;
    assert_eq!(bad(garbage), ("register", Some("GARBAGE".into())));
    assert_eq!(bad(r#"{"messageType":"unregister"}"#), ("unregister", None));
    assert_eq!(bad(r#"{"messageType":"urgency","min":"urgent"}"#), ("urgency", None));
    let key = format!(r#"{{"messageType":"register","channelID":"{CHID}","key":"AAAA"}}"#);
    assert_eq!(bad(&key), ("register", Some(CHID.into())));
    let long = format!(r#"{{"messageType":"register","channelID":"{}"}}"#, "é".repeat(5000));
    assert_eq!(bad(&long).1.unwrap().chars().count(), ECHO_CHARS_MAX);
}

#[test]
fn pings_are_empty_or_named() {
    assert_eq!(parse("{}"), Ok(ClientMessage::Ping));
    assert_eq!(parse(r#"{"messageType":"ping"}"#), Ok(ClientMessage::Ping));
}

#[test]
fn texts_that_are_no_message_have_different_errors() {
    for text in
        ["", "invalid frame", "[]", "5", "\"hello\"", "{", "{}{}", r#"{"messageType":"hello""#]
    {
        assert_eq!(parse(text), Err(InvalidFrame::NotJson), "{text}");
    }
    let unknown = |name: &str| Err(InvalidFrame::UnknownType { message_type: name.into() });
    assert_eq!(parse(r#"{"messageType":"frobnicate"}"#), unknown("frobnicate"));
    assert_eq!(parse(r#"{"messageType":7}"#), unknown(""));
    assert_eq!(parse(r#"{"a":1}"#), unknown(""));
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in ".*") {
        let _ = parse(&text);
    }
}

/// One message of each type.
const MESSAGES: [&str; 9] = [
    r#"{"messageType":"hello","uaid":"0123456701234567abcd0123456789ab","use_webpush":true,"broadcasts":{"a/b":"v1","c":"v2"}}"#,
    r#"{"messageType":"register","channelID":"01234567-0123-abcd-0123-0123456789ab","key":"BGsX0fLhLEJH-Lzm5WOkQPJ3A32BLeszoPShOUXYmMKWT-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU"}"#,
    r#"{"messageType":"unregister","channelID":"01234567-0123-abcd-0123-0123456789ab","code":200}"#,
    r#"{"messageType":"ack","updates":[{"channelID":"01234567-0123-abcd-0123-0123456789ab","version":"01930000000070008000000000000000","code":100}]}"#,
    r#"{"messageType":"nack","version":"01930000000070008000000000000000","code":301}"#,
    r#"{"messageType":"broadcast_subscribe","broadcasts":{"a/b":"\"v1\""}}"#,
    r#"{"messageType":"urgency","min":"high"}"#,
    r#"{"messageType":"ping"}"#,
    "{}",
];

#[test]
fn no_hostile_message_makes_the_parser_panic_or_echo_much() {
    fuzz("agent_messages", &MESSAGES, |bytes| {
        let echoed = match parse(&String::from_utf8_lossy(bytes)) {
            Err(InvalidFrame::UnknownType { message_type }) => Some(message_type),
            Err(InvalidFrame::BadField { channel_id, .. }) => channel_id,
            Err(_) | Ok(_) => None,
        };
        assert!(echoed.is_none_or(|text| text.chars().count() <= ECHO_CHARS_MAX));
    });
}

#[test]
fn a_version_of_simplepush_is_a_number_in_an_ack() {
    let chid = Chid::parse(CHID).unwrap();
    let ack = |version: &str| {
        parse(&format!(
            r#"{{"messageType":"ack","updates":[{{"channelID":"{CHID}","version":{version}}}]}}"#
        ))
    };
    for version in [0, 5, u64::MAX] {
        let updates =
            vec![AckUpdate { chid, id: MessageId::of_version(chid, version), code: None }];
        assert_eq!(ack(&version.to_string()), Ok(ClientMessage::Ack { updates }));
    }
    for wrong in ["-1", "1.5", "18446744073709551616", "\"5\"", "null", "[5]"] {
        assert_eq!(ack(wrong), Ok(ClientMessage::Ack { updates: vec![] }), "{wrong}");
    }
}
