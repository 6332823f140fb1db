use actix_web::http::header::{HeaderName, HeaderValue};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use proptest::prelude::*;

use super::*;
use crate::fuzz::fuzz;

const KEY: &str =
    "BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8";

/// The default of the setting `ttl_max_s`.
const TTL_MAX: Span = Span::from_secs(30 * 24 * 60 * 60);

/// Headers from lines as they stand in a request, by their bytes.
fn headers<T: AsRef<[u8]>>(lines: &[(&str, T)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in lines {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        map.append(name, HeaderValue::from_bytes(value.as_ref()).unwrap());
    }
    map
}

fn read<T: AsRef<[u8]>>(lines: &[(&str, T)]) -> Result<PushHeaders, HeaderError> {
    PushRules::default().headers(&headers(lines), TTL_MAX)
}

fn payload(headers: &HeaderMap, body: Bytes) -> Result<Option<Payload>, HeaderError> {
    PushRules::default().payload(headers, body, None)
}

fn encoding<T: AsRef<[u8]>>(lines: &[(&str, T)]) -> Result<Encoding, HeaderError> {
    payload(&headers(lines), Bytes::from_static(b"body")).map(|payload| payload.unwrap().encoding)
}

fn aesgcm(encryption: &str, crypto_key: &str) -> Encoding {
    Encoding::AesGcm { encryption: encryption.into(), crypto_key: crypto_key.into() }
}

#[test]
fn a_ttl_is_accepted_lowered_or_refused() {
    let lowered = Ok(TTL_MAX);
    for (expected, texts) in [
        (Ok(Span::ZERO), &["0", "00"][..]),
        (Ok(Span::from_secs(60)), &["60", " 60 "]),
        (lowered, &["2592000", "2592001", "4294967296", "18446744073709551615"]),
        (lowered, &["18446744073709551616", "99999999999999999999999999999999999999999999"]),
        (
            Err(HeaderError::TtlNegative),
            &["-1", "-99999999999999999999999999999999999999999999", "-0"],
        ),
        (
            Err(HeaderError::TtlInvalid),
            &["", "-", "--1", "+1", "1.5", "1e3", "0x10", "60, 60", "1 0", "soon"],
        ),
    ] {
        for text in texts {
            assert_eq!(read(&[("TTL", text)]).map(|headers| headers.ttl), expected, "{text:?}");
        }
    }
    assert_eq!(read::<&str>(&[]), Err(HeaderError::TtlMissing));
    for (maximum_s, kept_s) in [(99, 99), (101, 100)] {
        let map = headers(&[("ttl", "100")]);
        let read = PushRules::default().headers(&map, Span::from_secs(maximum_s));
        assert_eq!(read.unwrap().ttl, Span::from_secs(kept_s));
    }
}

#[test]
fn topic_and_urgency_are_accepted_or_refused() {
    let longest = "aA0-_".repeat(7)[..32].to_owned();
    let padded = format!("{longest}==");
    for (text, topic) in [("t", "t"), (&longest, &longest), (&padded, &longest), ("t=", "t")] {
        let read = read(&[("TTL", "0"), ("Topic", text)]).unwrap();
        assert_eq!(read.topic, Some(Topic::parse(topic).unwrap()), "{text:?}");
    }
    for text in ["", "=", "a b", "a/b", "a+b", "a=b", "a.b", &"t".repeat(33)] {
        let read = read(&[("TTL", "0"), ("Topic", text)]);
        assert_eq!(read, Err(HeaderError::Topic), "{text:?}");
    }
    for (text, urgency) in [
        ("very-low", Urgency::VeryLow),
        ("low", Urgency::Low),
        ("normal", Urgency::Normal),
        ("high", Urgency::High),
        ("High", Urgency::High),
    ] {
        assert_eq!(read(&[("TTL", "0"), ("Urgency", text)]).unwrap().urgency, urgency);
    }
    for text in ["", "urgent", "very_low", "high, low", "1"] {
        let read = read(&[("TTL", "0"), ("Urgency", text)]);
        assert_eq!(read, Err(HeaderError::Urgency), "{text:?}");
    }
    let PushHeaders { topic, urgency, .. } = read(&[("TTL", "0")]).unwrap();
    assert_eq!((topic, urgency), (None, Urgency::Normal));
}

#[test]
fn a_value_that_is_not_ascii_or_repeated_even_with_the_same_value_is_refused() {
    for (name, value, error) in [
        ("TTL", "60", HeaderError::TtlInvalid),
        ("Topic", "t", HeaderError::Topic),
        ("Urgency", "high", HeaderError::Urgency),
    ] {
        let ttl = vec![("ttl", &b"60"[..]); usize::from(name != "TTL")];
        let value = value.as_bytes();
        for wrong in [&[(name, value), (name, value)][..], &[(name, b"\xff\xfe")]] {
            assert_eq!(read(&[&ttl, wrong].concat()), Err(error), "{name}");
        }
    }
    let twice = [("Content-Encoding", "aes128gcm"), ("Content-Encoding", "aes128gcm")];
    assert_eq!(encoding(&twice), Err(HeaderError::EncodingUnknown));
    let not_ascii = [("Content-Encoding", b"aes128gcm\xe9")];
    assert_eq!(encoding(&not_ascii), Err(HeaderError::EncodingUnknown));
    let not_ascii = [("Content-Encoding", &b"aesgcm"[..]), ("Encryption", b"salt=\xe9")];
    assert_eq!(encoding(&not_ascii), Err(HeaderError::Malformed("Encryption")));
}

#[test]
fn an_empty_body_is_no_payload_whatever_its_headers() {
    for value in ["gzip", "aesgcm", "aes128gcm"] {
        let map = headers(&[("Content-Encoding", value)]);
        assert_eq!(payload(&map, Bytes::new()), Ok(None));
    }
}

#[test]
fn a_body_is_kept_unchanged() {
    let body = Bytes::from_static(b"\x00\xffbody");
    let map = headers(&[("Content-Encoding", "aes128gcm")]);
    let kept = Payload { data: body.clone(), encoding: Encoding::Aes128Gcm };
    assert_eq!(payload(&map, body), Ok(Some(kept)));
}

#[test]
fn aes128gcm_with_salt_or_key_in_a_header_is_refused() {
    let with = |extra: &[(&'static str, &'static str)]| {
        encoding(&[&[("Content-Encoding", "aes128gcm")], extra].concat())
    };
    let twice = |header, item| Err(HeaderError::InBodyAlready { header, item });
    assert_eq!(with(&[]), Ok(Encoding::Aes128Gcm));
    assert_eq!(
        with(&[("Encryption", "rs=4096"), ("Crypto-Key", "p256ecdsa=BA1H")]),
        Ok(Encoding::Aes128Gcm)
    );
    assert_eq!(with(&[("Encryption", "")]), Ok(Encoding::Aes128Gcm));
    assert_eq!(with(&[("Encryption", "rs=4096;salt=abc")]), twice("Encryption", "salt"));
    assert_eq!(with(&[("Crypto-Key", "p256ecdsa=BA1H,dh=abc")]), twice("Crypto-Key", "dh"));
    assert_eq!(with(&[("Crypto-Key", "nonsense")]), Err(HeaderError::Malformed("Crypto-Key")));
}

#[test]
fn aesgcm_headers_are_stored_without_quotes_padding_and_spaces() {
    for (encryption, crypto_key, as_handed_on) in [
        ("salt=c2FsdA", "dh=ZGg", ("salt=c2FsdA", "dh=ZGg")),
        ("salt=\"c2FsdA==\"", "dh=\"ZGg=\"", ("salt=c2FsdA", "dh=ZGg")),
        (
            "keyid=\"p256dh\";salt=\"c2FsdA==\"",
            "keyid=\"p256dh\"; dh=\"ZGg=\"",
            ("keyid=p256dh;salt=c2FsdA", "keyid=p256dh;dh=ZGg"),
        ),
        (
            "keyid=p256dh;salt=c2FsdA;rs=4096",
            "keyid=p256dh;dh=ZGg,p256ecdsa=BA1H",
            ("keyid=p256dh;salt=c2FsdA;rs=4096", "keyid=p256dh;dh=ZGg"),
        ),
        ("salt=c2FsdA;", "p256ecdsa=BA1H==, dh=ZGg==,", ("salt=c2FsdA", "dh=ZGg")),
        ("salt=c2FsdA", "p256ecdsa=BA1H;dh=ZGg;a=b", ("salt=c2FsdA", "dh=ZGg;a=b")),
    ] {
        let lines = [
            ("Content-Encoding", "aesgcm"),
            ("Encryption", encryption),
            ("Crypto-Key", crypto_key),
        ];
        assert_eq!(encoding(&lines), Ok(aesgcm(as_handed_on.0, as_handed_on.1)));
    }
}

#[test]
fn crypto_key_on_several_lines_is_one_list() {
    let lines = [
        ("Content-Encoding", "AESGCM"),
        ("Encryption", "salt=c2FsdA"),
        ("Crypto-Key", "p256ecdsa=BA1H"),
        ("Crypto-Key", KEY),
    ];
    let with_dh = format!("dh={KEY}");
    let lines = lines.map(|(name, value)| (name, if value == KEY { &*with_dh } else { value }));
    assert_eq!(encoding(&lines), Ok(aesgcm("salt=c2FsdA", &with_dh)));
}

#[test]
fn aesgcm_without_a_valid_salt_and_key_is_refused() {
    let long = format!("dh=ZGg;x={}", "a".repeat(2048));
    let not_base64 = HeaderError::NotBase64;
    for (encryption, crypto_key, error) in [
        (None, Some("dh=ZGg"), HeaderError::SaltMissing),
        (Some("rs=4096"), Some("dh=ZGg"), HeaderError::SaltMissing),
        (Some(""), Some("dh=ZGg"), HeaderError::SaltMissing),
        (Some("salt=c2FsdA"), None, HeaderError::DhMissing),
        (Some("salt=c2FsdA"), Some("p256ecdsa=BA1H"), HeaderError::DhMissing),
        (Some("salt="), Some("dh=ZGg"), not_base64("salt of the Encryption header")),
        (Some("salt=a+b"), Some("dh=ZGg"), not_base64("salt of the Encryption header")),
        (Some("salt=c2FsdA"), Some("dh=a/b"), not_base64("dh of the Crypto-Key header")),
        (Some("salt=c2FsdA"), Some("dh==="), not_base64("dh of the Crypto-Key header")),
        (Some("salt"), Some("dh=ZGg"), HeaderError::Malformed("Encryption")),
        (Some("salt=c2FsdA"), Some("dh=ZGg;x"), HeaderError::Malformed("Crypto-Key")),
        (Some("salt=c2FsdA"), Some(&long), HeaderError::Malformed("Crypto-Key")),
        (Some("salt=c2FsdA,salt=c2FsdA"), Some("dh=ZGg"), HeaderError::Repeated(SALT)),
        (Some("salt=c2FsdA"), Some("dh=ZGg;dh=ZGg"), HeaderError::Repeated(DH)),
        (Some("salt=c2FsdA"), Some("keyid=a;dh=ZGg,keyid=b;dh=ZGg"), HeaderError::Repeated(DH)),
    ] {
        let mut lines = vec![("Content-Encoding", "aesgcm")];
        lines.extend(encryption.map(|value| ("Encryption", value)));
        lines.extend(crypto_key.map(|value| ("Crypto-Key", value)));
        assert_eq!(encoding(&lines), Err(error), "{encryption:?} {crypto_key:?}");
    }
}

#[test]
fn encryption_key_is_refused_with_aesgcm() {
    let lines = [
        ("Content-Encoding", "aesgcm"),
        ("Encryption", "salt=c2FsdA"),
        ("Crypto-Key", "dh=ZGg"),
        ("Encryption-Key", "dh=ZGg"),
    ];
    assert_eq!(encoding(&lines), Err(HeaderError::EncryptionKey));
}

#[test]
fn a_body_in_an_unknown_encoding_is_refused() {
    assert_eq!(encoding::<&str>(&[]), Err(HeaderError::EncodingMissing));
    for value in ["", "gzip", "identity", "aesgcm128", "aes128gcm, gzip", "aes256gcm"] {
        let read = encoding(&[("Content-Encoding", value)]);
        assert_eq!(read, Err(HeaderError::EncodingUnknown), "{value:?}");
    }
}

proptest! {
    #[test]
    fn no_headers_panic_and_stored_headers_are_bounded(
        lines in proptest::collection::vec(
            (
                prop_oneof![
                    Just("ttl"), Just("topic"), Just("urgency"), Just("content-encoding"),
                    Just("encryption"), Just("crypto-key"), Just("encryption-key"),
                ],
                prop_oneof![
                    "[ -~\\x80-\\xff]{0,40}",
                    "(salt|dh|keyid|rs)=\"?[A-Za-z0-9_=-]{0,90}\"?[,;]?",
                    "-?[0-9]{1,30}", "aes(128)?gcm",
                ],
            ),
            0..8,
        ),
    ) {
        let map = headers(&lines);
        assert_bounded(&map);
    }
}

/// What is read of headers has its limits, whatever the headers are.
fn assert_bounded(headers: &HeaderMap) {
    if let Ok(read) = PushRules::default().headers(headers, TTL_MAX) {
        assert!(read.ttl <= TTL_MAX);
        assert!(read.topic.is_none_or(|topic| topic.as_str().len() <= 32));
    }
    if let Ok(Some(Payload { encoding: Encoding::AesGcm { encryption, crypto_key }, .. })) =
        payload(headers, Bytes::from_static(b"body"))
    {
        assert!(encryption.len().max(crypto_key.len()) <= CRYPTO_HEADER_MAX_BYTES);
        assert!(encryption.contains("salt=") && crypto_key.contains("dh="));
    }
}

/// The headers of pushes, one a line.
const PUSHES: [&str; 3] = [
    "ttl: 60\ntopic: mail\nurgency: high\ncontent-encoding: aes128gcm",
    "ttl: 2592001\nurgency: very-low\ncontent-encoding: aesgcm\nencryption: keyid=p256dh; salt=c2FsdA==\n\
     crypto-key: keyid=p256dh; dh=BGVuYw==, p256ecdsa=\"BGVuYw\"",
    "ttl: 0\ncontent-encoding: AESGCM\nencryption: salt=c2FsdA\nencryption: rs=4096\ncrypto-key: dh=BGVuYw\n\
     crypto-key: p256ecdsa=BGVuYw\nencryption-key: aesgcm=AAAA",
];

#[test]
fn no_hostile_headers_panic_or_are_kept_beyond_their_limits() {
    fuzz("push_headers", &PUSHES, |bytes| {
        let mut map = HeaderMap::new();
        for line in bytes.split(|byte| *byte == b'\n') {
            let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
            let (name, value) = (&line[..colon], line[colon..].get(1..).unwrap_or_default());
            let header = HeaderName::from_bytes(name).ok().zip(HeaderValue::from_bytes(value).ok());
            if let Some((name, value)) = header {
                map.append(name, value);
            }
        }
        assert_bounded(&map);
    });
}

const LENIENT: PushRules = PushRules { lenient: true, payload_header_required: false };
const STRICT: PushRules = PushRules { lenient: false, payload_header_required: true };

/// The shortest body of RFC 8291, changed at one place.
fn body(place: usize, byte: u8) -> Bytes {
    let fixed = [&[7; 16][..], &[0, 0, 16, 0], &[65], &[4], &[9; 64], &[1; 17]];
    let mut body = fixed.concat();
    body[place] = byte;
    body.into()
}

#[test]
fn a_push_without_ttl_and_encoding_is_taken_by_a_lenient_server_only() {
    let none = headers::<&str>(&[]);
    assert_eq!(LENIENT.headers(&none, TTL_MAX).unwrap().ttl, TTL_MAX);
    let refused = PushRules::default().headers(&none, TTL_MAX);
    assert_eq!(refused, Err(HeaderError::TtlMissing));
    let wrong = headers(&[("ttl", "soon")]);
    assert_eq!(LENIENT.headers(&wrong, TTL_MAX), Err(HeaderError::TtlInvalid));
    let wrong = headers(&[("urgency", "soon")]);
    assert_eq!(LENIENT.headers(&wrong, TTL_MAX), Err(HeaderError::Urgency));

    let taken = LENIENT.payload(&none, "plain".into(), None).unwrap().unwrap();
    assert_eq!(taken.encoding, Encoding::Aes128Gcm);
    let refused = PushRules::default().payload(&none, "plain".into(), None);
    assert_eq!(refused, Err(HeaderError::EncodingMissing));
    let wrong = headers(&[("content-encoding", "gzip")]);
    let refused = LENIENT.payload(&wrong, "plain".into(), None);
    assert_eq!(refused, Err(HeaderError::EncodingUnknown));
}

#[test]
fn a_body_is_compared_with_rfc_8291_by_the_setting_only() {
    let encoding = headers(&[("content-encoding", "aes128gcm")]);
    let whole = body(0, 7);
    assert!(STRICT.payload(&encoding, whole.clone(), None).is_ok());
    assert_eq!(STRICT.payload(&encoding, Bytes::new(), None), Ok(None));
    for (wrong, what) in [
        (whole.slice(..whole.len() - 1), "too short for a record"),
        (whole.slice(..20), "too short for the header"),
        (body(18, 0), "a record size of 0"),
        (body(20, 64), "another length of the key id"),
        (body(21, 2), "a compressed key"),
        (Bytes::from_static(b"{\"notification\":{}}"), "plain JSON"),
    ] {
        let refused = STRICT.payload(&encoding, wrong.clone(), None);
        assert_eq!(refused, Err(HeaderError::NoHeaderInBody), "{what}");
        assert!(PushRules::default().payload(&encoding, wrong, None).is_ok(), "{what}");
    }
}

#[test]
fn the_key_of_a_message_that_is_the_vapid_key_is_refused() {
    let point = |byte| [&[UNCOMPRESSED][..], &[byte; 64]].concat();
    let text = |byte| URL_SAFE_NO_PAD.encode(point(byte));
    let (key, other) = (parse_key(&text(9)).unwrap(), parse_key(&text(8)).unwrap());
    let none = PushRules::default();
    let aesgcm = |keys: &str| {
        let mut map = headers(&[("content-encoding", "aesgcm"), ("encryption", "salt=c2FsdA")]);
        map.insert(HeaderName::from_static("crypto-key"), keys.parse().unwrap());
        map
    };
    for keys in [
        format!("dh={}", text(9)),
        format!("p256ecdsa={};dh={}", text(9), text(9)),
        format!("keyid=a;dh=\"{}=\"", text(9)),
    ] {
        let refused = none.payload(&aesgcm(&keys), "x".into(), Some(&key));
        assert_eq!(refused, Err(HeaderError::VapidKeyReused(DH)), "{keys}");
        for different in [Some(&other), None] {
            assert!(none.payload(&aesgcm(&keys), "x".into(), different).is_ok(), "{keys}");
        }
    }
    let encoding = headers(&[("content-encoding", "aes128gcm")]);
    let in_body = HeaderError::VapidKeyReused("key in the header of the body");
    assert_eq!(STRICT.payload(&encoding, body(0, 7), Some(&key)), Err(in_body));
    assert!(STRICT.payload(&encoding, body(0, 7), Some(&other)).is_ok());
    assert!(none.payload(&encoding, body(0, 7), Some(&key)).is_ok());
}
