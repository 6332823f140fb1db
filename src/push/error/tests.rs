use actix_web::body::MessageBody;
use actix_web::http::header::{CONTENT_TYPE, HeaderName};
use serde_json::{Value, json};

use super::*;

/// Status, errno and error of every error.
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
        (400, 110, HeaderError::Repeated("salt of the Encryption header").into()),
        (400, 110, HeaderError::VapidKeyReused("dh of the Crypto-Key header").into()),
        (400, 111, HeaderError::TtlMissing.into()),
        (400, 112, HeaderError::TtlInvalid.into()),
        (400, 113, HeaderError::Topic.into()),
        (400, 114, HeaderError::TtlNegative.into()),
        (400, 115, HeaderError::Urgency.into()),
        (400, 108, PushError::OtherProtocol),
        (400, 999, FormError::Version.into()),
        (400, 999, FormError::DataNotText.into()),
        (400, 999, FormError::ContentType.into()),
        (413, 104, FormError::DataTooLarge { max_bytes: 4096 }.into()),
        (404, 102, TokenError::Unknown.into()),
        (404, 102, PushError::NoSuchMessage),
        (404, 117, PushError::NotFound),
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
        (410, 106, PushError::Bridge(BridgeOutcome::RecipientGone)),
        (413, 104, PushError::Bridge(BridgeOutcome::TooLarge { max_bytes: 4096 })),
        (429, 201, PushError::Bridge(BridgeOutcome::Busy { retry_after: None })),
        (502, 900, PushError::Bridge(BridgeOutcome::UnknownApp)),
        (502, 900, PushError::Bridge(BridgeOutcome::Misconfigured)),
        (502, 901, PushError::Bridge(BridgeOutcome::Unauthorized)),
        (502, 902, PushError::Bridge(BridgeOutcome::Unavailable)),
        (503, 903, PushError::Bridge(BridgeOutcome::TimedOut)),
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
fn every_error_has_its_status_its_errno_and_its_headers() {
    for (status, errno, error) in table() {
        assert_eq!(error.error_response().status().as_u16(), status, "{error}");
        assert_eq!(error.errno().number(), errno, "{error}");
        crate::system::errno::assert_described(status, errno);
        let expected = json!({
            "code": status,
            "errno": errno,
            "error": StatusCode::from_u16(status).unwrap().canonical_reason().unwrap(),
            "message": error.to_string(),
            "more_info": format!("/errors#{errno}"),
        });
        assert_eq!(body(&error), expected);
        let retry_after = match (status, errno) {
            (503, _) | (502, 902) => Some("5"),
            (429, _) if matches!(error, PushError::Bridge(_)) => Some("5"),
            (429, _) => Some("60"),
            _ => None,
        };
        for (name, expected) in [
            (CONTENT_TYPE, Some("application/json")),
            (WWW_AUTHENTICATE, (status == 401).then_some("vapid")),
            (CACHE_CONTROL, (status == 410).then_some("max-age=86400")),
            (RETRY_AFTER, retry_after),
        ] {
            assert_eq!(header(&error, name.clone()).as_deref(), expected, "{name}: {error}");
        }
    }
}

#[test]
fn the_retry_after_of_a_bridge_is_passed_on_in_whole_seconds() {
    for (ms, expected) in [(1, "1"), (1000, "1"), (90_001, "91")] {
        let busy = PushError::Bridge(BridgeOutcome::Busy { retry_after: Some(Span(ms)) });
        assert_eq!(header(&busy, RETRY_AFTER).as_deref(), Some(expected));
    }
}

#[test]
fn the_limit_of_a_bridge_is_in_the_message() {
    let large = PushError::Bridge(BridgeOutcome::TooLarge { max_bytes: 4000 });
    assert!(body(&large)["message"].as_str().unwrap().contains("4000 bytes"));
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
