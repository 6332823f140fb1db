//! The Matrix push gateway.

use serde_json::{Value, json};

use super::ask;
use crate::harness::{Answer, Server};

const NOTIFY: &str = "POST /_matrix/push/v1/notify";

/// Checks status and error code, and that the message contains `names`.
fn assert_refused(answer: &Answer, status: u16, errcode: &str, names: &str) {
    let body = answer.json();
    assert_eq!((answer.status, &body["errcode"]), (status, &json!(errcode)), "{answer}");
    assert!(body["error"].as_str().is_some_and(|error| error.contains(names)), "{names}: {answer}");
}

#[actix_web::test]
async fn each_field_of_a_matrix_notification_in_each_faulty_form_is_refused_and_named() {
    let server = Server::start();
    let notification = |value: Value| json!({"notification": value}).to_string();
    let devices = |value: Value| notification(json!({"event_id": "$a", "devices": value}));
    let with = |field: &str, value: Value| notification(json!({"devices": [], field: value}));
    let (long, bad_json, large) = ("x".repeat(5000), (400, "M_BAD_JSON"), (413, "M_TOO_LARGE"));
    let twice = r#"{"notification":{"devices":[]},"notification":{"devices":[]}}"#.to_owned();
    for (field, what, body, (status, errcode)) in [
        ("notification", "missing", "{}".to_owned(), bad_json),
        ("notification", "null", notification(Value::Null), bad_json),
        ("notification", "empty", notification(json!("")), bad_json),
        ("notification", "a list", notification(json!([])), bad_json),
        ("notification", "twice", twice, bad_json),
        ("devices", "missing", notification(json!({})), bad_json),
        ("devices", "null", devices(Value::Null), bad_json),
        ("devices", "empty", devices(json!("")), bad_json),
        ("devices", "one without a list", devices(json!({"pushkey": "a"})), bad_json),
        ("devices", "too many", devices(json!(vec![json!({"pushkey": "a"}); 17])), large),
        ("pushkey", "missing", devices(json!([{"app_id": "a"}])), bad_json),
        ("pushkey", "null", devices(json!([{"pushkey": null}])), bad_json),
        ("pushkey", "without a device", devices(json!(["a"])), bad_json),
        ("pushkey", "another type", devices(json!([{"pushkey": "a"}, {"pushkey": 1}])), bad_json),
        ("pushkey", "too long", devices(json!([{"pushkey": &long[..513]}])), bad_json),
        ("event_id", "too long", with("event_id", json!(long)), large),
        ("room_id", "too long", with("room_id", json!(long)), large),
        ("counts", "too long", with("counts", json!({"unread": long})), large),
        ("prio", "too long", with("prio", json!(long)), large),
    ] {
        println!("{field}, {what}");
        assert_refused(&ask(&server, NOTIFY, "", body).await, status, errcode, field);
    }
    let (half, control) =
        (&b"{\"notification\":"[..], b"{\"notification\":{\"devices\":[\"\x01\"]}}");
    for body in [b"", half, b"notification=a", control, b"{\"notification\":\"\xff\"}"] {
        assert_refused(&ask(&server, NOTIFY, "", body).await, 400, "M_NOT_JSON", "body");
    }
    let whole = notification(json!({"devices": [], "content": "x".repeat(131_072)}));
    assert_refused(&ask(&server, NOTIFY, "", whole).await, 413, "M_TOO_LARGE", "body");
}

#[actix_web::test]
async fn a_pushkey_that_is_a_text_and_no_endpoint_is_rejected_by_its_name() {
    let server = Server::start();
    let (origin, long) = (server.origin(), "A".repeat(400));
    for pushkey in [
        String::new(),
        "ключ".to_owned(),
        "a\u{0}b\n".to_owned(),
        format!("{origin}/wpush/"),
        format!("{origin}/wpush/%ff"),
        format!("{origin}/wpush/{long}"),
        format!("{origin}/wpush/{}\u{1}", "A".repeat(63)),
    ] {
        let request =
            json!({"notification": {"event_id": "$a", "devices": [{"pushkey": pushkey}]}});
        let answer = ask(&server, NOTIFY, "", request.to_string()).await;
        assert_eq!((answer.status, answer.json()), (200, json!({"rejected": [pushkey]})));
    }
}
