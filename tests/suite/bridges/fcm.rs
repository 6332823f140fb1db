//! Messages to FCM, and its answers.

use serde_json::{Value, json};
use state_machine::BridgeName::Fcm;
use state_machine::BridgeOutcome::{
    Accepted, Busy, Misconfigured, RecipientGone, TooLarge, Unauthorized, Unavailable, UnknownApp,
};
use state_machine::{Encoding, Message, Payload, Span, Topic, Urgency};

use super::{CHID, World, large, message, recipient};
use crate::harness::Reply;
use crate::harness::push_service::PROJECT;

/// The `android` part of the only message that the server has received.
async fn android_of(message: Message) -> Value {
    let world = World::new();
    assert_eq!(world.send(&recipient(Fcm), &message).await, Accepted);
    world.service.messages()[0].body["message"]["android"].clone()
}

#[actix_web::test]
async fn a_message_has_the_names_that_the_clients_of_mozilla_read() {
    let world = World::new();
    assert_eq!(world.send_to(Fcm).await, Accepted);
    let received = &world.service.messages()[0];
    assert_eq!(received.path, format!("/v1/projects/{PROJECT}/messages:send"));
    assert_eq!(received.headers["authorization"], "Bearer access-1");
    assert_eq!(received.headers["content-type"], "application/json");
    let data = json!({"chid": CHID, "body": "-_8A", "con": "aes128gcm"});
    let android = json!({"ttl": "60s", "priority": "NORMAL", "data": data});
    assert_eq!(received.body, json!({"message": {"token": "fcm-token:abc_1", "android": android}}));
}

#[actix_web::test]
async fn the_old_encoding_has_its_headers_and_a_message_without_a_body_only_its_channel() {
    let encoding = Encoding::AesGcm { encryption: "salt=a".into(), crypto_key: "dh=b".into() };
    let old = Message { payload: Some(Payload { data: vec![1].into(), encoding }), ..message() };
    let expected =
        json!({"chid": CHID, "body": "AQ", "con": "aesgcm", "enc": "salt=a", "cryptokey": "dh=b"});
    assert_eq!(android_of(old).await["data"], expected);
    let bare = Message { payload: None, ..message() };
    assert_eq!(android_of(bare).await["data"], json!({"chid": CHID}));
}

#[actix_web::test]
async fn urgency_ttl_and_topic_have_their_forms() {
    for (urgency, priority) in [
        (Urgency::VeryLow, "NORMAL"),
        (Urgency::Low, "NORMAL"),
        (Urgency::Normal, "NORMAL"),
        (Urgency::High, "HIGH"),
    ] {
        assert_eq!(android_of(Message { urgency, ..message() }).await["priority"], priority);
    }
    for (ttl, expected) in
        [(Span::ZERO, "0s"), (Span(1999), "1s"), (Span::from_secs(5_000_000), "2419200s")]
    {
        assert_eq!(android_of(Message { ttl, ..message() }).await["ttl"], expected);
    }
    let topic = Topic::parse("news").ok();
    let android = android_of(Message { topic, ..message() }).await;
    assert_eq!(android["collapse_key"], format!("{CHID}news"));
}

#[actix_web::test]
async fn a_message_over_4096_bytes_of_names_and_values_is_not_sent() {
    let world = World::new();
    // chid (4 + 36), con (3 + 9) and the name of the body (4) leave 4040 characters of base64 for 3030 bytes.
    assert_eq!(world.send(&recipient(Fcm), &large(3030)).await, Accepted);
    let outcome = world.send(&recipient(Fcm), &large(3031)).await;
    assert_eq!(outcome, TooLarge { max_bytes: 4096 });
    assert_eq!(world.service.messages().len(), 1);
}

fn refusal(code: u16, status: &str, message: &str, details: &Value) -> String {
    json!({"error": {"code": code, "status": status, "message": message, "details": details}})
        .to_string()
}

fn fcm_error(code: &str) -> Value {
    json!([{"@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError", "errorCode": code}])
}

#[actix_web::test]
async fn every_documented_answer_has_its_outcome() {
    let violation = |field: &str| {
        json!([{"@type": "type.googleapis.com/google.rpc.BadRequest",
            "fieldViolations": [{"field": field, "description": "Invalid value"}]}])
    };
    let invalid = "INVALID_ARGUMENT";
    let not_a_token = "The registration token is not a valid FCM registration token";
    let quota = Busy { retry_after: Some(Span::from_secs(30)) };
    for (code, status, message, details, outcome) in [
        (400, invalid, "x", violation("message.token"), RecipientGone),
        (400, invalid, not_a_token, fcm_error(invalid), RecipientGone),
        (400, invalid, "x", violation("message.android.ttl"), Misconfigured),
        (
            400,
            invalid,
            "Android message is too big",
            fcm_error(invalid),
            TooLarge { max_bytes: 4096 },
        ),
        (401, "UNAUTHENTICATED", "x", fcm_error("THIRD_PARTY_AUTH_ERROR"), Misconfigured),
        (403, "PERMISSION_DENIED", "x", fcm_error("SENDER_ID_MISMATCH"), Misconfigured),
        (403, "PERMISSION_DENIED", "x", json!([]), Unauthorized),
        (404, "NOT_FOUND", "x", fcm_error("UNREGISTERED"), RecipientGone),
        // Of a wrong project or URL: no record is dropped.
        (404, "NOT_FOUND", "x", json!([]), Misconfigured),
        (429, "RESOURCE_EXHAUSTED", "x", fcm_error("QUOTA_EXCEEDED"), quota),
        (500, "INTERNAL", "x", fcm_error("INTERNAL"), Unavailable),
        (502, "", "x", json!([]), Unavailable),
        (503, "UNAVAILABLE", "x", fcm_error("UNAVAILABLE"), Unavailable),
    ] {
        let world = World::new();
        let body = refusal(code, status, message, &details);
        world.service.reply(Reply::json(code, &body).header("retry-after", "30"));
        assert_eq!(world.send_to(Fcm).await, outcome, "{body}");
    }
}

#[actix_web::test]
async fn garbage_is_bounded_and_the_code_among_it_is_read() {
    let huge = "x".repeat(1_000_000);
    for (status, body, outcome) in [
        (200, "garbage", Accepted),
        (200, huge.as_str(), Accepted),
        (302, "", Misconfigured),
        (400, "", Misconfigured),
        (404, "<html>UNREGISTERED", Misconfigured),
        (404, huge.as_str(), Misconfigured),
        (418, r#"{"error":{"details":[{"errorCode":"UNREGISTERED"}]}}"#, Misconfigured),
        (
            404,
            r#"{"error":{"details":[7,{"errorCode":5},{"errorCode":"UNREGISTERED"}]}}"#,
            RecipientGone,
        ),
        (
            404,
            r#"{"error":{"message":5,"details":[{"errorCode":"UNREGISTERED","fieldViolations":5}]}}"#,
            RecipientGone,
        ),
        (404, r#"{"error":{"status":5,"details":{"errorCode":"UNREGISTERED"}}}"#, Misconfigured),
        (404, r#"[{"error":7}]"#, Misconfigured),
        (429, "{}", Busy { retry_after: None }),
        (500, huge.as_str(), Unavailable),
        (503, r#"{"error":7}"#, Unavailable),
    ] {
        let world = World::new();
        world.service.reply(Reply::json(status, body));
        assert_eq!(world.send_to(Fcm).await, outcome, "{status}");
    }
}

#[actix_web::test]
async fn a_retry_after_is_at_least_a_second_and_at_most_a_day() {
    for (value, seconds) in [("0", 1), ("1", 1), ("99999999", 24 * 60 * 60)] {
        let world = World::new();
        world.service.reply(Reply::json(429, "").header("retry-after", value));
        let retry_after = Some(Span::from_secs(seconds));
        assert_eq!(world.send_to(Fcm).await, Busy { retry_after });
    }
}

#[actix_web::test]
async fn an_application_that_the_file_does_not_name_is_misconfigured() {
    let world = World::new();
    let mut other = recipient(Fcm);
    other.app = "other".into();
    assert_eq!(world.send(&other, &message()).await, UnknownApp);
}
