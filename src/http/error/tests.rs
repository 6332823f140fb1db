use actix_web::body::MessageBody;
use actix_web::http::header::HeaderName;
use serde_json::{Value, json};

use super::*;

/// Every row of the table of errors, with what makes it.
fn table() -> Vec<(u16, u16, PushError)> {
    let second = Span::from_secs(1);
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
        (404, 102, TokenError::Unknown.into()),
        (404, 102, MessageUrlError.into()),
        (404, 102, PushError::NotFound),
        (410, 103, PushError::UserGone),
        (413, 104, PushError::TooLarge { max_bytes: 4096 }),
        (410, 105, PushError::UserWentAway),
        (410, 106, PushError::NoSuchSubscription),
        (400, 108, PushError::Registration("the router type must be webpush")),
        (401, 109, VapidError::Signature.into()),
        (401, 109, audience.into()),
        (401, 109, TokenError::KeyNeeded.into()),
        (403, 109, TokenError::OtherKey.into()),
        (429, 201, PushError::TooMany { retry_after: second }),
        (503, 201, PushError::Unavailable { retry_after: second }),
        (503, 201, PushError::TooManyConnections { retry_after: second }),
        (503, 202, PushError::RetryNow),
        (500, 900, PushError::Bridge(BridgeFault::Misconfigured)),
        (502, 901, PushError::Bridge(BridgeFault::Unauthorized)),
        (502, 902, PushError::Bridge(BridgeFault::Unreachable)),
        (502, 903, PushError::Bridge(BridgeFault::Slow)),
        (500, 999, PushError::Internal),
        (418, 999, PushError::LogCheck),
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
fn every_error_has_its_status_and_number_and_says_so_in_its_body() {
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
fn an_answer_names_the_scheme_on_401_alone_and_may_be_kept_on_410_alone() {
    for (status, _, error) in table() {
        let scheme = header(&error, WWW_AUTHENTICATE);
        assert_eq!(scheme.as_deref(), (status == 401).then_some("vapid"), "{error}");
        let cached = header(&error, CACHE_CONTROL);
        assert_eq!(cached.as_deref(), (status == 410).then_some("max-age=86400"), "{error}");
    }
}

#[test]
fn an_answer_says_when_to_come_back_on_429_and_503_alone() {
    for (status, _, error) in table() {
        let expected = matches!(status, 429 | 503);
        assert_eq!(header(&error, RETRY_AFTER).is_some(), expected, "{error}");
    }
    for (span, secs) in [(0, "1"), (1, "1"), (1000, "1"), (1001, "2"), (120_000, "120")] {
        let error = PushError::Unavailable { retry_after: Span(span) };
        assert_eq!(header(&error, RETRY_AFTER).as_deref(), Some(secs));
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
