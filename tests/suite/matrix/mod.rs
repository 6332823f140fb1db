//! The Matrix push gateway over real sockets, with the requests of Synapse and with Synapse itself.

mod synapse;

use std::fs;
use std::path::Path;

use hyper::Method;
use serde_json::{Value, json};

use crate::harness::{Agent, Answer, Channel, Launch, Notification, Sender, Server, Signer};

const PATH: &str = "/_matrix/push/v1/notify";

/// What Synapse sends: see `fixtures/matrix`.
const REQUESTS: [&str; 4] = ["event", "invite", "event_id_only", "counts"];

/// The request in a fixture, for an app with this pushkey.
fn request(name: &str, pushkey: &str) -> Value {
    let file = format!("fixtures/matrix/{name}.json");
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file));
    let text = text.expect("there is a fixture").replace("PUSHKEY", pushkey);
    serde_json::from_str(&text).expect("a fixture is JSON")
}

/// A notification of an event for several devices.
fn event(id: &str, pushkeys: &[&str]) -> Value {
    let devices: Vec<_> =
        pushkeys.iter().map(|key| json!({"app_id": "a", "pushkey": key})).collect();
    json!({"notification": {"event_id": id, "room_id": "!r", "devices": devices}})
}

fn counts(unread: u32, pushkey: &str) -> Value {
    let devices = json!([{"app_id": "a", "pushkey": pushkey}]);
    json!({"notification": {"counts": {"unread": unread}, "devices": devices}})
}

async fn notify(server: &Server, request: &Value) -> Answer {
    let url = format!("{}{PATH}", server.origin());
    Sender::new().post(&url).raw_body(request.to_string()).send().await
}

/// The pushkeys that the answer rejects.
fn rejected(answer: &Answer) -> Vec<String> {
    assert_eq!(answer.status, 200, "{answer}");
    let body = answer.json();
    serde_json::from_value(body["rejected"].clone()).expect("it lists pushkeys")
}

/// Checks that the request was refused as a whole.
fn assert_refused(answer: &Answer, status: u16, errcode: &str) {
    let body = answer.json();
    assert_eq!((answer.status, &body["errcode"]), (status, &errcode.into()), "{answer}");
    assert!(body["error"].is_string(), "{answer}");
}

/// What an app reads in a message.
fn notification(message: &Notification) -> Value {
    assert_eq!(message.headers, json!({"encoding": "aes128gcm"}));
    let body: Value = serde_json::from_str(message.body()).expect("the message is JSON");
    body["notification"].clone()
}

#[actix_web::test]
async fn apps_discover_the_gateway_unless_it_is_off() {
    let on = Server::start();
    let sender = Sender::new();
    let answer = sender.get(&format!("{}{PATH}", on.origin())).await;
    assert_eq!(answer.status, 200, "{answer}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.body, br#"{"unifiedpush":{"gateway":"matrix"}}"#);
    let answer = sender.request(Method::PUT, &format!("{}{PATH}", on.origin())).send().await;
    assert_refused(&answer, 405, "M_UNRECOGNIZED");
    assert_eq!(answer.header("allow"), Some("GET, HEAD, POST"));

    // With another status Element would keep this server as its gateway.
    let off = Server::start_with(&["--matrix-gateway=false"]);
    sender.get(&format!("{}{PATH}", off.origin())).await.assert_error(404, 117);
    notify(&off, &event("$a", &[])).await.assert_error(404, 117);
}

#[actix_web::test]
async fn each_request_of_synapse_reaches_the_app_without_its_devices() {
    let (server, mut agent, channel) = Server::with_subscribed(&[]).await;
    for name in REQUESTS {
        let mut request = request(name, &channel.endpoint);
        let (answer, got) = tokio::join!(notify(&server, &request), agent.take(1));
        assert_eq!(rejected(&answer), Vec::<String>::new());
        request["notification"].as_object_mut().unwrap().remove("devices");
        assert_eq!(notification(&got[0]), request["notification"], "{name}");
    }
}

#[actix_web::test]
async fn an_offline_app_gets_all_events_and_the_last_counts() {
    let (server, uaid, channel) = Server::with_offline(&[]).await;
    let pushkey = channel.endpoint.as_str();
    for request in [counts(1, pushkey), event("$a", &[pushkey]), counts(2, pushkey)] {
        assert!(rejected(&notify(&server, &request).await).is_empty());
    }
    for request in [event("$b", &[pushkey]), counts(3, pushkey)] {
        assert!(rejected(&notify(&server, &request).await).is_empty());
    }
    let mut agent = Agent::reconnect(&server, &uaid).await;
    let got: Vec<_> = agent.take(3).await.iter().map(notification).collect();
    let events: Vec<_> = got.iter().filter_map(|got| got["event_id"].as_str()).collect();
    assert_eq!(events, ["$a", "$b"]);
    assert!(got.contains(&json!({"counts": {"unread": 3}})), "{got:?}");
    assert_eq!(agent.pending_notifications().await, []);
}

#[actix_web::test]
async fn a_message_larger_than_a_push_has_what_every_app_understands() {
    let (server, mut agent, channel) = Server::with_subscribed(&[]).await;
    let mut request = request("event", &channel.endpoint);
    request["notification"]["content"]["body"] = "x".repeat(60_000).into();
    let (answer, got) = tokio::join!(notify(&server, &request), agent.take(1));
    assert!(rejected(&answer).is_empty());
    let whole = &request["notification"];
    let expected = json!({
        "event_id": whole["event_id"], "room_id": whole["room_id"], "prio": "high",
        "counts": {"unread": 1},
    });
    assert_eq!(notification(&got[0]), expected);
}

#[actix_web::test]
async fn pushkeys_that_no_later_notification_can_reach_are_rejected_and_the_others_served() {
    let server = Server::start();
    let other = Server::start();
    let (mut agent, channel) = Agent::subscribed(&server).await;
    let gone = agent.register().await;
    agent.unregister(&gone).await;
    let restricted = agent.register_for(&Signer::new().key()).await;
    let foreign = Agent::new(&other).await.register().await;
    // The token is of this server, the origin is not.
    let elsewhere = channel.endpoint.replace("http://", "https://");
    let unknown = format!("{}/wpush/{}", server.origin(), "A".repeat(64));
    let forged = foreign.endpoint.replace(&other.origin(), &server.origin());
    let (endpoint, gone) = (channel.endpoint.as_str(), gone.endpoint.as_str());
    let (restricted, foreign) = (restricted.endpoint.as_str(), foreign.endpoint.as_str());
    let none = ["not a URL", foreign, &elsewhere, &unknown, &forged, gone, restricted];
    let request = event("$a", &[&[endpoint], &none[..]].concat());
    let (answer, got) = tokio::join!(notify(&server, &request), agent.take(1));
    assert_eq!(rejected(&answer), none);
    assert_eq!(got[0].channel, channel.id);
}

#[actix_web::test]
async fn a_full_app_makes_the_homeserver_repeat_and_loses_nothing() {
    let (server, uaid, full) = Server::with_offline(&["--user-messages-max=1"]).await;
    assert!(rejected(&notify(&server, &event("$a", &[&full.endpoint])).await).is_empty());
    let (mut agent, channel) = Agent::subscribed(&server).await;
    // The others of the request are served nevertheless, and again when it is repeated.
    let request = event("$b", &["not a URL", &full.endpoint, &channel.endpoint]);
    let (answer, got) = tokio::join!(notify(&server, &request), agent.take(1));
    assert_refused(&answer, 429, "M_LIMIT_EXCEEDED");
    assert_eq!(answer.header("retry-after"), Some("60"));
    assert_eq!(notification(&got[0])["event_id"], "$b");

    let mut returned = Agent::reconnect(&server, &uaid).await;
    assert_eq!(notification(&returned.take(1).await[0])["event_id"], "$a");
    returned.pending_notifications().await;
    let (answer, got, again) =
        tokio::join!(notify(&server, &request), returned.take(1), agent.take(1));
    assert_eq!(rejected(&answer), ["not a URL"]);
    assert_eq!(notification(&got[0])["event_id"], "$b");
    assert_eq!(notification(&again[0])["event_id"], "$b");
}

#[actix_web::test]
async fn without_space_on_the_disk_the_homeserver_repeats() {
    let (mut server, uaid, channel) = Server::with_offline(&[]).await;
    server.terminate();
    server.restart_as(Launch::default().with(&["--disk-free-min=1000000000000"]));
    let request = event("$a", &[&channel.endpoint]);
    let answer = notify(&server, &request).await;
    assert_refused(&answer, 503, "M_UNKNOWN");
    assert_eq!(answer.header("retry-after"), Some("5"));
    server.terminate();
    server.restart_as(Launch::default());
    assert!(rejected(&notify(&server, &request).await).is_empty());
    let mut agent = Agent::reconnect(&server, &uaid).await;
    assert_eq!(notification(&agent.take(1).await[0])["event_id"], "$a");
}

#[actix_web::test]
async fn each_device_counts_as_a_push_of_its_address_and_to_its_subscription() {
    let limited = ["--address-pushes-per-minute-max=3", "--loopback-limited=true"];
    let server = Server::start_with(&limited);
    let answer = notify(&server, &event("$a", &["a", "b", "c", "d"])).await;
    assert_refused(&answer, 429, "M_LIMIT_EXCEEDED");
    assert!(answer.header("ratelimit-policy").is_some_and(|policy| policy.contains("address")));

    let (server, mut agent) = Server::with_agent(&["--subscription-pushes-per-minute-max=1"]).await;
    let (one, other) = (agent.register().await, agent.register().await);
    let request = |channel: &Channel| event("$a", &[&channel.endpoint]);
    assert!(rejected(&notify(&server, &request(&one)).await).is_empty());
    assert_refused(&notify(&server, &request(&one)).await, 429, "M_LIMIT_EXCEEDED");
    assert!(rejected(&notify(&server, &request(&other)).await).is_empty());
}

#[actix_web::test]
async fn an_invalid_request_is_refused_with_an_error_of_matrix() {
    let server = Server::start();
    let url = format!("{}{PATH}", server.origin());
    let pushkeys = ["a"; 17];
    let large = json!({"notification": {"devices": [], "content": "x".repeat(131_072)}});
    for (body, status, errcode) in [
        (String::new(), 400, "M_NOT_JSON"),
        ("{\"notification\":".to_owned(), 400, "M_NOT_JSON"),
        ("{}".to_owned(), 400, "M_BAD_JSON"),
        (event(&"x".repeat(5000), &[]).to_string(), 413, "M_TOO_LARGE"),
        (event("$a", &pushkeys).to_string(), 413, "M_TOO_LARGE"),
        (large.to_string(), 413, "M_TOO_LARGE"),
    ] {
        let answer = Sender::new().post(&url).raw_body(body).send().await;
        assert_refused(&answer, status, errcode);
        assert_eq!(answer.header("connection"), Some("close"), "{answer}");
    }
    assert!(rejected(&notify(&server, &event("$a", &[])).await).is_empty());
}
