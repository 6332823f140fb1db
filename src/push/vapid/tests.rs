use std::collections::BTreeSet;

use actix_web::http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use proptest::prelude::*;
use serde::Deserialize;

use super::*;
use crate::fuzz::fuzz;
use crate::settings::value::Value as _;
use crate::settings::{FormerUrls, PublicUrl};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fixture {
    now_ms: u64,
    origin: String,
    signing_key: String,
    other_signing_key: String,
    default: Defaults,
    case: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Defaults {
    header: String,
    claims: String,
    authorization: String,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    now_ms: Option<u64>,
    header: Option<String>,
    claims: Option<String>,
    authorization: Option<String>,
    #[serde(default)]
    crypto_key: Vec<String>,
    refused: Option<String>,
}

impl Fixture {
    fn load() -> Self {
        toml::from_str(include_str!("../../../fixtures/jwts/cases.toml")).unwrap()
    }

    fn now(&self) -> Time {
        Time(self.now_ms)
    }

    fn vapid(&self) -> Vapid {
        vapid_of(&self.origin, 1 << 20)
    }

    /// The headers of a case, with its tokens and keys in their places.
    fn headers(&self, case: &Case) -> HeaderMap {
        let (pair, other) = (key_pair(&self.signing_key), key_pair(&self.other_signing_key));
        let header = case.header.as_ref().unwrap_or(&self.default.header);
        let claims = case.claims.as_ref().unwrap_or(&self.default.claims);
        let key = pair.public_key().as_ref();
        let fill = |line: &str| {
            line.replace("{jwt}", &sign(&pair, header, claims))
                .replace("{forged}", &sign(&other, header, claims))
                .replace("{key}", &URL_SAFE_NO_PAD.encode(key))
                .replace("{key_padded}", &URL_SAFE.encode(key))
                .replace("{key_standard}", &STANDARD_NO_PAD.encode(key))
                .replace("{other_key}", &URL_SAFE_NO_PAD.encode(other.public_key()))
        };
        let authorization = case.authorization.as_ref().unwrap_or(&self.default.authorization);
        let mut map = headers(&[fill(authorization).as_bytes()]);
        for line in &case.crypto_key {
            let name = HeaderName::from_static("crypto-key");
            map.append(name, HeaderValue::from_str(&fill(line)).unwrap());
        }
        map
    }

    /// A case that is accepted, with other claims.
    fn headers_with(&self, claims: &str) -> HeaderMap {
        self.headers(&Case { claims: Some(claims.to_owned()), ..Case::default() })
    }
}

fn vapid_of(origin: &str, cache_max_bytes: usize) -> Vapid {
    let origins = Origins::new(PublicUrl::parse(origin).unwrap(), FormerUrls::default());
    Vapid::new(Arc::new(origins), AllowedVapidKeys::default(), cache_max_bytes)
}

fn key_pair(pkcs8: &str) -> EcdsaKeyPair {
    let pkcs8 = STANDARD.decode(pkcs8).unwrap();
    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &pkcs8).unwrap()
}

fn sign(key: &EcdsaKeyPair, header: &str, claims: &str) -> String {
    let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
    let signature = key.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

fn headers(authorization: &[&[u8]]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for line in authorization {
        map.append(AUTHORIZATION, HeaderValue::from_bytes(line).unwrap());
    }
    map
}

fn verify(vapid: &Vapid, headers: &HeaderMap, now: Time) -> Result<(), VapidError> {
    let credentials = Credentials::read(headers)?.expect("there is an Authorization header");
    vapid.verify(&credentials, now).map(|name| assert_eq!(name, Name::Own))
}

#[test]
fn each_case_of_the_fixture_has_the_expected_result() {
    let fixture = Fixture::load();
    let vapid = fixture.vapid();
    for case in &fixture.case {
        let (headers, now) = (fixture.headers(case), case.now_ms.unwrap_or(fixture.now_ms));
        // The second time, what was accepted is remembered.
        for time in ["first", "second"] {
            let refused = verify(&vapid, &headers, Time(now)).err().map(|error| error.to_string());
            assert_eq!(refused, case.refused, "{}, the {time} time", case.name);
        }
    }
}

#[test]
fn the_fixture_covers_every_error_and_repeats_no_case() {
    let fixture = Fixture::load();
    let names: BTreeSet<_> = fixture.case.iter().map(|case| &case.name).collect();
    assert_eq!(names.len(), fixture.case.len());
    let message = |error: VapidError| error.to_string();
    let expected: Box<str> = fixture.origin.as_str().into();
    for error in [
        VapidError::Scheme,
        VapidError::ParameterRepeated("t"),
        VapidError::NoToken,
        VapidError::NoKey,
        VapidError::NoLegacyKey,
        VapidError::Key,
        VapidError::TokenShape,
        VapidError::TokenHeader,
        VapidError::Algorithm,
        VapidError::Critical,
        VapidError::SignatureShape,
        VapidError::Signature,
        VapidError::Claims,
        VapidError::NoAudience { expected: expected.clone() },
        VapidError::Audience { expected },
        VapidError::NoExpiry,
        VapidError::ExpiryType,
        VapidError::Expired { ago_s: 61 },
        VapidError::ExpiresTooLate { ahead_s: 86_461 },
    ] {
        let has = |case: &Case| case.refused.as_deref() == Some(&*message(error.clone()));
        assert!(fixture.case.iter().any(has), "{error}");
    }
}

#[test]
fn a_missing_authorization_is_none_and_a_repeated_or_non_ascii_one_is_refused() {
    let read = |lines: &[&[u8]]| Credentials::read(&headers(lines)).map(|read| read.is_some());
    assert_eq!(read(&[]), Ok(false));
    let twice = [&b"vapid t=a,k=b"[..]; 2];
    assert_eq!(read(&twice), Err(VapidError::HeaderRepeated));
    assert_eq!(read(&[b"vapid t=\xff,k=b"]), Err(VapidError::HeaderNotText));
}

#[test]
fn a_token_that_is_too_long_or_deeply_nested_is_refused() {
    let fixture = Fixture::load();
    let filled = |filler: usize| {
        let filler = "x".repeat(filler);
        format!(r#"{{"aud":"{}","exp":1700043200,"x":"{filler}"}}"#, fixture.origin)
    };
    for (claims, expected) in [
        (filled(2500), Ok(())),
        (filled(3500), Err(VapidError::TokenTooLong)),
        (format!("{{\"x\":{}", "[".repeat(2000)), Err(VapidError::Claims)),
    ] {
        let headers = fixture.headers_with(&claims);
        assert_eq!(verify(&fixture.vapid(), &headers, fixture.now()), expected, "{claims}");
    }
}

#[test]
fn the_key_that_endpoints_are_bound_to_is_the_same_in_every_spelling() {
    let fixture = Fixture::load();
    let headers = fixture.headers(&fixture.case[0]);
    let credentials = Credentials::read(&headers).unwrap().unwrap();
    let pair = key_pair(&fixture.signing_key);
    assert_eq!(credentials.key().as_bytes().as_slice(), pair.public_key().as_ref());
    let spellings = [
        URL_SAFE_NO_PAD.encode(pair.public_key()),
        URL_SAFE.encode(pair.public_key()),
        STANDARD.encode(pair.public_key()),
        STANDARD_NO_PAD.encode(pair.public_key()),
    ];
    for text in &spellings {
        let key = parse_key(text).unwrap();
        assert_eq!(key.as_bytes().as_slice(), pair.public_key().as_ref());
        assert_eq!(format!("{key:?}"), spellings[0]);
    }
}

#[test]
fn a_verified_token_is_cached_until_it_expires() {
    let fixture = Fixture::load();
    let (vapid, headers) = (fixture.vapid(), fixture.headers(&fixture.case[0]));
    assert_eq!(verify(&vapid, &headers, fixture.now()), Ok(()));
    assert_eq!(vapid.verified.len(), 1);
    let expiry = Time(1_700_043_200_000);
    assert_eq!(verify(&vapid, &headers, expiry + CLOCK_LEEWAY), Ok(()));
    let late = expiry + CLOCK_LEEWAY + Span(1000);
    let expired = Err(VapidError::Expired { ago_s: 61 });
    assert_eq!(verify(&vapid, &headers, late), expired);
    assert_eq!(vapid.verified.len(), 0);
    assert_eq!(verify(&vapid, &headers, late), expired);
}

#[test]
fn a_refused_token_is_not_cached() {
    let fixture = Fixture::load();
    let vapid = fixture.vapid();
    for case in fixture.case.iter().filter(|case| case.refused.is_some()) {
        let now = Time(case.now_ms.unwrap_or(fixture.now_ms));
        assert!(verify(&vapid, &fixture.headers(case), now).is_err());
    }
    assert_eq!(vapid.verified.len(), 0);
}

#[test]
fn a_cached_token_is_valid_for_its_own_key_origin_and_text_only() {
    let fixture = Fixture::load();
    let (vapid, headers) = (fixture.vapid(), fixture.headers(&fixture.case[0]));
    assert_eq!(verify(&vapid, &headers, fixture.now()), Ok(()));

    let good = Credentials::read(&headers).unwrap().unwrap();
    let other_pair = key_pair(&fixture.other_signing_key);
    let other_key = parse_key(&URL_SAFE.encode(other_pair.public_key())).unwrap();
    let with_other_key = Credentials { key: other_key, ..good.clone() };
    assert_eq!(vapid.verify(&with_other_key, fixture.now()), Err(VapidError::Signature));

    let cut = Credentials { token: &good.token[..good.token.len() - 1], ..good.clone() };
    assert_eq!(vapid.verify(&cut, fixture.now()), Err(VapidError::SignatureShape));

    let elsewhere = vapid_of("https://push.example.com", 1 << 20);
    let expected = "https://push.example.com".into();
    assert_eq!(elsewhere.verify(&good, fixture.now()), Err(VapidError::Audience { expected }));
}

#[test]
fn the_cache_is_bounded() {
    let fixture = Fixture::load();
    let max_bytes = 100_000;
    let vapid = vapid_of(&fixture.origin, max_bytes);
    for at in 0..600 {
        let claims = format!(r#"{{"aud":"{}","exp":{}}}"#, fixture.origin, 1_700_043_200 + at);
        assert_eq!(verify(&vapid, &fixture.headers_with(&claims), fixture.now()), Ok(()));
    }
    assert!((50..=450).contains(&vapid.verified.len()), "{}", vapid.verified.len());
}

#[test]
fn without_a_cache_each_token_is_verified_every_time() {
    let fixture = Fixture::load();
    let vapid = vapid_of(&fixture.origin, 0);
    let headers = fixture.headers(&fixture.case[0]);
    for _ in 0..2 {
        assert_eq!(verify(&vapid, &headers, fixture.now()), Ok(()));
        assert_eq!(vapid.verified.len(), 0);
    }
}

proptest! {
    #[test]
    fn no_header_panics(
        line in prop_oneof![
            "[ -~\\x80-\\xff]{0,80}",
            "(vapid|WebPush|Bearer) [tk]=[A-Za-z0-9_.=-]{0,120},[tk]=[A-Za-z0-9+/_=-]{0,100}",
        ],
        key in "[ -~\\x80-\\xff]{0,40}",
    ) {
        let mut map = headers(&[line.as_bytes()]);
        let name = HeaderName::from_static("crypto-key");
        map.append(name, HeaderValue::from_bytes(key.as_bytes()).unwrap());
        if let Ok(Some(credentials)) = Credentials::read(&map) {
            prop_assert!(Fixture::load().vapid().verify(&credentials, Time(0)).is_err());
        }
    }

    #[test]
    fn no_token_panics(token in "[A-Za-z0-9_.-]{0,300}") {
        let pair = key_pair(&Fixture::load().signing_key);
        let key = parse_key(&URL_SAFE.encode(pair.public_key())).unwrap();
        let credentials = Credentials { token: &token, key };
        prop_assert!(Fixture::load().vapid().verify(&credentials, Time(0)).is_err());
    }

    #[test]
    fn no_claims_panic(claims in "\\PC{0,60}|\\{\"(aud|exp)\":[0-9e.-]{0,12}\\}") {
        let fixture = Fixture::load();
        let headers = fixture.headers_with(&claims);
        prop_assert!(verify(&fixture.vapid(), &headers, fixture.now()).is_err());
    }
}

#[test]
fn no_hostile_credentials_panic_or_are_accepted() {
    let fixture = Fixture::load();
    let vapid = fixture.vapid();
    // The Authorization header, and a Crypto-Key header in each further line.
    let samples: Vec<String> =
        fixture.case.iter().map(|case| lines(&fixture.headers(case))).collect();
    let signed = |token: &str| token.rsplit_once('.').map(|(signed, _)| signed.to_owned());
    fuzz("vapid", &samples, |bytes| {
        let mut lines = bytes.split(|byte| *byte == b'\n').map(HeaderValue::from_bytes);
        let mut map = HeaderMap::new();
        if let Some(Ok(authorization)) = lines.next() {
            map.append(AUTHORIZATION, authorization);
        }
        for value in lines.flatten() {
            map.append(HeaderName::from_static("crypto-key"), value);
        }
        let Ok(Some(credentials)) = Credentials::read(&map) else { return };
        if vapid.verify(&credentials, fixture.now()).is_ok() {
            let text = signed(credentials.token).expect("a token has a signature");
            assert!(samples.iter().any(|sample| sample.contains(&text)), "forged: {text}");
        }
        assert!(vapid.verified.len() <= samples.len() * 4, "only what was signed is remembered");
    });
}

fn lines(headers: &HeaderMap) -> String {
    let first = headers.get(AUTHORIZATION).into_iter();
    let values = first.chain(headers.get_all("crypto-key"));
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    values.map(text).collect::<Vec<_>>().join("\n")
}
