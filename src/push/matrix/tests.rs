use actix_web::body::MessageBody;
use actix_web::http::ConnectionType;
use state_machine::store::FullScope;

use super::*;
use crate::limits::OverLimit;
use crate::settings::value::Value as _;
use crate::settings::{FormerUrls, PublicUrl};

fn fields(notification: &Value) -> Fields {
    notification.as_object().expect("a notification is an object").clone()
}

fn forwarded(notification: &Value) -> Forwarded {
    Forwarded::new(&fields(notification), 4096).unwrap()
}

#[test]
fn a_pushkey_is_an_endpoint_url_of_this_origin() {
    let own = PublicUrl::parse("https://push.example.net").unwrap();
    let origins = Origins::new(own, FormerUrls::default());
    for (pushkey, token) in [
        ("https://push.example.net/wpush/abc", Some((TokenVersion::Short, "abc"))),
        ("https://push.example.net/wpush/r/abc", Some((TokenVersion::Restricted, "abc"))),
        ("https://push.example.net/wpush/v1/abc=", Some((TokenVersion::V1, "abc="))),
        ("https://push.example.net/wpush/v2/abc", Some((TokenVersion::V2, "abc"))),
        ("https://push.example.net/wpush/abc?up=1#x", Some((TokenVersion::Short, "abc"))),
        ("HTTPS://PUSH.example.NET:443/wpush/abc", Some((TokenVersion::Short, "abc"))),
        ("http://push.example.net/wpush/abc", None),
        ("https://push.example.net:8443/wpush/abc", None),
        ("https://push.example.net.evil.example/wpush/abc", None),
        ("https://push.example.net@evil.example/wpush/abc", None),
        ("https://evil.example/https://push.example.net/wpush/abc", None),
        ("wss://push.example.net/wpush/abc", None),
        ("https://push.example.net/wpush/v3/abc", None),
        ("https://push.example.net/m/abc", None),
        ("https://push.example.net/WPUSH/abc", None),
        ("https://push.example.net", None),
        ("//push.example.net/wpush/abc", None),
        ("/wpush/abc", None),
        ("data:,https://push.example.net/wpush/abc", None),
        ("V2h5IG9uIGVhcnRoIGRpZCB5b3UgZGVjb2RlIHRoaXM/", None),
        ("", None),
    ] {
        let url = Url::parse(pushkey).ok();
        let read = url.as_ref().and_then(|url| endpoint_token(url, &origins));
        let token = token.map(|(version, token)| (Name::Own, version, token));
        assert_eq!(read, token, "{pushkey}");
    }
}

#[test]
fn the_message_is_the_request_without_its_devices() {
    let body = br#"{"notification": {"event_id": "$a", "type": null, "x": [1, {"y": 2.5}],
        "devices": [{"app_id": "b", "pushkey": "c"}, {"pushkey": "d", "tweaks": {}}]}, "z": 1}"#;
    let Notification { pushkeys, fields } = Notification::read(body).unwrap();
    assert_eq!(pushkeys, ["c", "d"]);
    let data = Forwarded::new(&fields, 4096).unwrap().data;
    let expected = json!({"notification": {"event_id": "$a", "type": null, "x": [1, {"y": 2.5}]}});
    assert_eq!(serde_json::from_slice::<Value>(&data).unwrap(), expected);
}

#[test]
fn the_priority_is_high_unless_it_is_low() {
    for (notification, urgency) in [
        (json!({"prio": "high"}), Urgency::High),
        (json!({"prio": "low"}), Urgency::Low),
        (json!({}), Urgency::High),
        (json!({"prio": null}), Urgency::High),
        (json!({"prio": "urgent"}), Urgency::High),
    ] {
        assert_eq!(forwarded(&notification).urgency, urgency, "{notification}");
    }
}

#[test]
fn only_notifications_without_an_event_replace_each_other() {
    for (notification, replaces) in [
        (json!({"event_id": "$a", "counts": {"unread": 1}}), false),
        (json!({"event_id": "", "counts": {"unread": 1}}), true),
        (json!({"id": "", "type": null, "counts": {"unread": 1}}), true),
        (json!({}), true),
    ] {
        assert_eq!(forwarded(&notification).topic.is_some(), replaces, "{notification}");
    }
}

#[test]
fn a_notification_that_is_too_large_is_reduced_to_what_every_app_understands() {
    let essential =
        json!({"event_id": "$a", "room_id": "!b", "counts": {"unread": 1}, "prio": "low"});
    let mut whole = fields(&essential);
    whole.insert("sender".to_owned(), "@c:d.example".into());
    whole.insert("content".to_owned(), json!({"body": "x".repeat(200)}));
    let size = to_json(&whole).len();
    for (bytes_max, expected) in [(size, Value::Object(whole.clone())), (size - 1, essential)] {
        let Forwarded { data, urgency, topic, .. } = Forwarded::new(&whole, bytes_max).unwrap();
        let read: Value = serde_json::from_slice(&data).unwrap();
        assert_eq!(read, json!({"notification": expected}));
        assert_eq!((urgency, topic), (Urgency::Low, None));
    }
}

#[test]
fn ids_that_fill_a_message_are_refused() {
    let ids = |bytes: usize| fields(&json!({"event_id": "x".repeat(bytes)}));
    let around = to_json(&ids(0)).len();
    assert!(Forwarded::new(&ids(4096 - around), 4096).is_ok());
    assert_eq!(Forwarded::new(&ids(4097 - around), 4096).unwrap_err(), NotifyError::TooLong);
}

#[test]
fn an_invalid_body_is_refused_by_its_kind() {
    let of = |devices: Vec<Value>| json!({"notification": {"devices": devices}}).to_string();
    let devices = |count| of(vec![json!({"pushkey": "a"}); count]);
    let pushkey = |bytes| of(vec![json!({"pushkey": "a".repeat(bytes)})]);
    let deep = "[".repeat(1000);
    let kinds: [(Option<NotifyError>, &[&str]); 6] = [
        (
            Some(NotifyError::NotJson),
            &[
                "",
                "{",
                r#"{"notification": {"devices": []}} x"#,
                &format!(r#"{{"notification": {{"devices": [], "x": {deep}"#),
            ],
        ),
        (
            Some(NotifyError::NoNotification),
            &[
                "null",
                "{}",
                r#"{"notification": {"devices": []}, "notification": {"devices": []}}"#,
            ],
        ),
        (
            Some(NotifyError::NoDevices),
            &[r#"{"notification": {}}"#, r#"{"notification": {"devices": {}}}"#],
        ),
        (
            Some(NotifyError::NoPushkey),
            &[
                r#"{"notification": {"devices": [{}]}}"#,
                r#"{"notification": {"devices": ["a"]}}"#,
                r#"{"notification": {"devices": [{"pushkey": 1}]}}"#,
                &pushkey(PUSHKEY_BYTES_MAX + 1),
            ],
        ),
        (Some(NotifyError::TooManyDevices), &[&devices(DEVICES_MAX + 1)]),
        (None, &[&pushkey(PUSHKEY_BYTES_MAX), &devices(0), &devices(DEVICES_MAX)]),
    ];
    for (error, bodies) in kinds {
        for body in bodies {
            assert_eq!(Notification::read(body.as_bytes()).err(), error, "{body}");
        }
    }
}

#[test]
fn a_refusal_has_an_error_code_of_matrix_and_the_headers_of_a_refused_push() {
    let over = OverLimit { policy: "address", per_minute: 3, wait: Span::from_secs(20) };
    let push = |error| NotifyError::Push(error);
    for (error, status, errcode, retry_after) in [
        (NotifyError::Method, 405, "M_UNRECOGNIZED", None),
        (NotifyError::NotJson, 400, "M_NOT_JSON", None),
        (NotifyError::NoNotification, 400, "M_BAD_JSON", None),
        (NotifyError::NoDevices, 400, "M_BAD_JSON", None),
        (NotifyError::NoPushkey, 400, "M_BAD_JSON", None),
        (NotifyError::TooManyDevices, 413, "M_TOO_LARGE", None),
        (NotifyError::TooLong, 413, "M_TOO_LARGE", None),
        (push(PushError::TooLarge { max_bytes: 1 }), 413, "M_TOO_LARGE", None),
        (push(PushError::Http(StatusCode::REQUEST_TIMEOUT)), 408, "M_UNKNOWN", None),
        (push(PushError::OverLimit(over)), 429, "M_LIMIT_EXCEEDED", Some("20")),
        (push(PushError::WaitingFull(FullScope::User)), 429, "M_LIMIT_EXCEEDED", Some("60")),
        (push(PushError::Unavailable), 503, "M_UNKNOWN", Some("5")),
    ] {
        let response = error.response();
        let header = |name| response.headers().get(name).map(|value| value.to_str().unwrap());
        assert_eq!(response.status().as_u16(), status, "{error}");
        assert_eq!(header("retry-after"), retry_after, "{error}");
        assert_eq!(header("content-type"), Some("application/json"), "{error}");
        let is_invalid = matches!(status, 400 | 413);
        assert_eq!(response.head().connection_type() == ConnectionType::Close, is_invalid);
        let body = response.into_body().try_into_bytes().unwrap();
        let expected = json!({"errcode": errcode, "error": error.to_string()});
        assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), expected, "{error}");
    }
}

#[test]
fn only_what_stays_so_rejects_a_pushkey() {
    for (error, expected) in [
        (PushError::Token(TokenError::Unknown), true),
        (PushError::Token(TokenError::KeyNeeded), true),
        (PushError::OtherProtocol, true),
        (PushError::UserGone, true),
        (PushError::UserWentAway, true),
        (PushError::NoSuchSubscription, true),
        (PushError::WaitingFull(FullScope::Channel), false),
        (PushError::Unavailable, false),
    ] {
        assert_eq!(is_final(&error), expected, "{error}");
    }
}
