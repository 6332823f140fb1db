use actix_web::body::MessageBody;
use actix_web::http::header::HeaderName;
use serde_json::{Value, json};

use super::*;

/// Status, errno and error of every row of the table in docs/protocol.md.
fn table() -> Vec<(u16, u16, PushError)> {
    let audience = VapidError::Audience { expected: "https://push.example.net".into() };
    vec![
        (400, 101, HeaderError::DhMissing.into()),
        (400, 110, HeaderError::EncodingMissing.into()),
        (400, 110, HeaderError::EncodingUnknown.into()),
        (400, 110, HeaderError::SaltMissing.into()),
        (400, 110, HeaderError::NotBase64("salt of the Encryption header").into()),
        (400, 110, HeaderError::Malformed("Encryption").into()),
        (400, 110, HeaderError::InBodyAlready { header: "Encryption", item: "salt" }.into()),
        (400, 110, HeaderError::EncryptionKey.into()),
        (400, 111, HeaderError::TtlMissing.into()),
        (400, 112, HeaderError::TtlInvalid.into()),
        (400, 113, HeaderError::Topic.into()),
        (400, 114, HeaderError::TtlNegative.into()),
        (400, 115, HeaderError::Urgency.into()),
        (400, 108, PushError::OtherProtocol),
        (400, 999, PushError::Version),
        (404, 102, TokenError::Unknown.into()),
        (404, 102, MessageUrlError.into()),
        (404, 102, PushError::NotFound),
        (410, 103, PushError::UserGone),
        (413, 104, PushError::TooLarge { max_bytes: 4096 }),
        (410, 105, PushError::UserWentAway),
        (410, 106, PushError::NoSuchSubscription),
        (401, 109, VapidError::Signature.into()),
        (401, 109, audience.into()),
        (401, 109, TokenError::KeyNeeded.into()),
        (403, 109, TokenError::OtherKey.into()),
        (429, 201, PushError::WaitingFull(FullScope::User)),
        (429, 201, PushError::WaitingFull(FullScope::Channel)),
        (503, 201, PushError::Unavailable),
        (503, 201, PushError::TooManyConnections),
        (405, 999, PushError::Http(StatusCode::METHOD_NOT_ALLOWED)),
    ]
}

fn body(error: &PushError) -> Value {
    let bytes = error.error_response().into_body().try_into_bytes().unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

fn header(error: &PushError, name: HeaderName) -> Option<String> {
    let response = error.error_response();
    response.headers().get(name).map(|value| value.to_str().unwrap().to_owned())
}

#[test]
fn every_error_has_its_status_and_errno_in_its_body() {
    for (status, errno, error) in table() {
        assert_eq!(error.error_response().status().as_u16(), status, "{error}");
        assert_eq!(error.errno(), errno, "{error}");
        let expected = json!({
            "code": status,
            "errno": errno,
            "error": StatusCode::from_u16(status).unwrap().canonical_reason().unwrap(),
            "message": error.to_string(),
            "more_info": MORE_INFO,
        });
        assert_eq!(body(&error), expected);
        let content_type = header(&error, actix_web::http::header::CONTENT_TYPE);
        assert_eq!(content_type.as_deref(), Some("application/json"));
    }
}

#[test]
fn only_a_401_names_the_scheme_and_only_a_410_may_be_cached() {
    for (status, _, error) in table() {
        let scheme = header(&error, WWW_AUTHENTICATE);
        assert_eq!(scheme.as_deref(), (status == 401).then_some("vapid"), "{error}");
        let cached = header(&error, CACHE_CONTROL);
        assert_eq!(cached.as_deref(), (status == 410).then_some("max-age=86400"), "{error}");
    }
}

#[test]
fn only_a_503_and_a_429_have_retry_after() {
    for (status, _, error) in table() {
        let retry_after = header(&error, RETRY_AFTER);
        let expected = match status {
            503 => Some("5"),
            429 => Some("60"),
            _ => None,
        };
        assert_eq!(retry_after.as_deref(), expected, "{error}");
    }
}

#[test]
fn a_message_names_the_check_that_failed() {
    let message = |error: PushError| body(&error)["message"].as_str().unwrap().to_owned();
    assert!(message(VapidError::Signature.into()).contains("signature"));
    assert!(message(VapidError::NoExpiry.into()).contains("exp"));
    assert!(message(HeaderError::TtlMissing.into()).contains("TTL"));
    let audience = VapidError::Audience { expected: "https://push.example.net".into() };
    assert!(message(audience.into()).contains("it must be https://push.example.net"));
}
