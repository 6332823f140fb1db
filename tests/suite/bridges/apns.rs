//! Messages to APNs, and its answers.

use serde_json::{Value, json};
use state_machine::BridgeName::Apns;
use state_machine::BridgeOutcome::{
    Accepted, Busy, Misconfigured, RecipientGone, TooLarge, Unauthorized, Unavailable,
};
use state_machine::{BridgeOutcome, Message, Span, Topic, Urgency};

use super::{CHID, World, large, message, recipient};
use crate::harness::Reply;
use crate::harness::push_service::{ReceivedMessage, TEAM_ID, TOPIC};

/// What the server received of a message to an agent that asked for this `aps`.
async fn received(message: &Message, aps: Option<&str>) -> ReceivedMessage {
    let world = World::new();
    let mut recipient = recipient(Apns);
    recipient.aps = aps.map(Into::into);
    assert_eq!(world.send(&recipient, message).await, Accepted);
    world.service.messages().remove(0)
}

#[actix_web::test]
async fn a_message_has_the_headers_of_apple_and_the_names_that_firefox_reads() {
    let received = received(&message(), None).await;
    let token = recipient(Apns).token;
    assert_eq!(received.path, format!("/3/device/{token}"));
    for (name, value) in [
        ("apns-topic", TOPIC),
        ("apns-push-type", "alert"),
        ("apns-priority", "10"),
        ("apns-expiration", "1800000060"),
        ("apns-id", "01920000-0000-7000-8000-000000000002"),
    ] {
        assert_eq!(received.headers[name], value);
    }
    assert!(!received.headers.contains_key("apns-collapse-id"));
    assert_eq!(received.claims.expect("the token is signed")["iss"], TEAM_ID);
    let alert = json!({
        "loc-key": "SentTab.NoTabArrivingNotification.body",
        "title-loc-key": "SentTab.NoTabArrivingNotification.title",
    });
    let aps = json!({"alert": alert, "mutable-content": 1});
    let ver = message().id.to_string();
    let expected =
        json!({"aps": aps, "chid": CHID, "ver": ver, "con": "aes128gcm", "body": "-_8A"});
    assert_eq!(received.body, expected);
}

#[actix_web::test]
async fn the_aps_of_the_agent_replaces_the_usual_one() {
    let alert = received(&message(), Some(r#"{"alert":{"title":"x"},"mutable-content":1}"#)).await;
    assert_eq!(alert.body["aps"], json!({"alert": {"title": "x"}, "mutable-content": 1}));
    assert_eq!(alert.headers["apns-push-type"], "alert");
    let silent = received(&message(), Some(r#"{"content-available":1}"#)).await;
    assert_eq!(silent.headers["apns-push-type"], "background");
    assert_eq!(silent.headers["apns-priority"], "5");
    let broken = received(&message(), Some("[7]")).await;
    assert_eq!(broken.body["aps"]["mutable-content"], 1);
}

#[actix_web::test]
async fn urgency_ttl_and_topic_have_their_headers() {
    for (urgency, priority) in [
        (Urgency::VeryLow, "1"),
        (Urgency::Low, "5"),
        (Urgency::Normal, "10"),
        (Urgency::High, "10"),
    ] {
        let received = received(&Message { urgency, ..message() }, None).await;
        assert_eq!(received.headers["apns-priority"], priority);
    }
    let at_once = received(&Message { ttl: Span::ZERO, ..message() }, None).await;
    assert_eq!(at_once.headers["apns-expiration"], "0");
    let topic = Topic::parse(&"t".repeat(32)).ok();
    let collapsed = received(&Message { topic, ..message() }, None).await;
    let id = collapsed.headers["apns-collapse-id"].to_str().expect("it is a text");
    assert_eq!(id, format!("{}{}", CHID.replace('-', ""), "t".repeat(32)));
    assert_eq!(id.len(), 64);
}

#[actix_web::test]
async fn a_payload_over_4096_bytes_is_not_sent() {
    let world = World::new();
    let bare = received(&Message { payload: None, ..message() }, None).await.body.to_string().len();
    // `,"body":"","con":"aes128gcm"` is 28 bytes, and base64 has four characters for three bytes.
    let fits = (4096 - bare - 28) / 4 * 3;
    assert_eq!(world.send(&recipient(Apns), &large(fits)).await, Accepted);
    let outcome = world.send(&recipient(Apns), &large(fits + 3)).await;
    assert_eq!(outcome, TooLarge { max_bytes: 4096 });
    assert_eq!(world.service.messages().len(), 1);
}

#[actix_web::test]
async fn a_token_that_is_not_hexadecimal_is_no_recipient() {
    let world = World::new();
    for token in ["../../x", "zz", "a b", &"a".repeat(513)] {
        let mut recipient = recipient(Apns);
        recipient.token = token.into();
        assert_eq!(world.send(&recipient, &message()).await, RecipientGone, "{token}");
    }
    assert!(world.service.messages().is_empty());
}

/// The reasons that Apple documents, with their statuses.
const REASONS: [(u16, &str, BridgeOutcome); 30] = [
    (400, "BadCollapseId", Misconfigured),
    // A wrong environment answers so too: no record is dropped.
    (400, "BadDeviceToken", Misconfigured),
    (400, "BadExpirationDate", Misconfigured),
    (400, "BadMessageId", Misconfigured),
    (400, "BadPriority", Misconfigured),
    (400, "BadTopic", Misconfigured),
    (400, "DeviceTokenNotForTopic", Misconfigured),
    (400, "DuplicateHeaders", Misconfigured),
    (400, "IdleTimeout", Unavailable),
    (400, "InvalidPushType", Misconfigured),
    (400, "MissingDeviceToken", Misconfigured),
    (400, "MissingTopic", Misconfigured),
    (400, "PayloadEmpty", Misconfigured),
    (400, "TopicDisallowed", Misconfigured),
    (403, "BadCertificate", Unauthorized),
    (403, "BadCertificateEnvironment", Unauthorized),
    (403, "Forbidden", Unauthorized),
    (403, "InvalidProviderToken", Unauthorized),
    (403, "MissingProviderToken", Unauthorized),
    (403, "UnrelatedKeyIdInToken", Unauthorized),
    (403, "BadEnvironmentKeyIdInToken", Unauthorized),
    (404, "BadPath", Misconfigured),
    (405, "MethodNotAllowed", Misconfigured),
    (410, "ExpiredToken", RecipientGone),
    (410, "Unregistered", RecipientGone),
    (413, "PayloadTooLarge", TooLarge { max_bytes: 4096 }),
    (429, "TooManyProviderTokenUpdates", Busy { retry_after: None }),
    (429, "TooManyRequests", Busy { retry_after: None }),
    (500, "InternalServerError", Unavailable),
    (503, "ServiceUnavailable", Unavailable),
];

#[actix_web::test]
async fn every_documented_reason_has_its_outcome() {
    for (status, reason, outcome) in REASONS.into_iter().chain([(503, "Shutdown", Unavailable)]) {
        let world = World::new();
        world.service.reply(Reply::json(status, &json!({"reason": reason}).to_string()));
        assert_eq!(world.send_to(Apns).await, outcome, "{reason}");
    }
}

#[actix_web::test]
async fn garbage_is_bounded_and_drops_no_recipient() {
    for (status, body, outcome) in [
        (200, Value::Null.to_string(), Accepted),
        (410, String::new(), Misconfigured),
        (410, "x".repeat(1_000_000), Misconfigured),
        (410, r#"{"reason":7}"#.to_owned(), Misconfigured),
        (400, r#"{"reason":"Unregistered"}"#.to_owned(), Misconfigured),
        (302, String::new(), Misconfigured),
        (503, "x".repeat(1_000_000), Unavailable),
    ] {
        let world = World::new();
        world.service.reply(Reply::json(status, &body));
        assert_eq!(world.send_to(Apns).await, outcome, "{status}");
    }
}

#[actix_web::test]
async fn a_client_certificate_needs_no_token() {
    let world = World::new();
    let mut recipient = recipient(Apns);
    recipient.app = "certified".into();
    assert_eq!(world.send(&recipient, &message()).await, Accepted);
    let received = &world.service.messages()[0];
    assert!(received.has_certificate && !received.headers.contains_key("authorization"));
}
