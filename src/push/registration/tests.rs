use std::net::SocketAddr;

use actix_web::test::TestRequest;
use serde::Deserialize;
use serde_json::{Value, json};
use state_machine::wire::VapidKey;
use storage::Store;

use super::body::BODY_BYTES_MAX;
use super::error::{APS_BYTES_MAX, TOKEN_CHARS_MAX};
use super::fixture::{Agent, Answer, Scene, TOKEN};
use crate::settings::AllowedVapidKeys;

const KEY: &str =
    "BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8";
const CHID: &str = "deadbeef-0000-4000-8000-decafbad0000";

/// The answers as a client of Mozilla's application-services parses them (components/push, communications.rs).
#[derive(Deserialize)]
struct RegisterResponse {
    uaid: String,
    #[serde(rename = "channelID")]
    channel_id: String,
    secret: String,
    endpoint: String,
}

#[derive(Deserialize)]
struct SubscribeResponse {
    #[serde(rename = "channelID")]
    channel_id: String,
    endpoint: String,
}

#[derive(Deserialize)]
struct ChannelList {
    uaid: String,
    #[serde(rename = "channelIDs")]
    channel_ids: Vec<String>,
}

fn parsed<T: for<'a> Deserialize<'a>>(answer: Answer) -> T {
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_value(answer.json).unwrap()
}

/// Such a client sends no `Authorization` before the first registration, and a `key` that may be null.
#[actix_web::test]
async fn an_agent_of_application_services_registers_subscribes_updates_lists_and_leaves() {
    let (scene, none) = (Scene::new(|_| ()).await, Value::Null);
    let (base, register) = ("/v1/fcm/1234/registration", json!({"token": TOKEN, "key": null}));
    let RegisterResponse { uaid, channel_id, secret, endpoint } =
        parsed(scene.ask("POST", base, None, &register).await);
    assert!(uaid.len() == 32 && uaid.bytes().all(|byte| byte.is_ascii_hexdigit()), "{uaid}");
    assert_eq!(endpoint, format!("https://push.example/{uaid}/{channel_id}/false"));

    let agent = Agent { uaid: uaid.clone(), secret, channel: channel_id.clone() };
    let subscribe = json!({"token": TOKEN, "key": KEY});
    let second: SubscribeResponse =
        parsed(scene.of(&agent, "POST", "/subscription", subscribe).await);
    assert_eq!(second.endpoint, format!("https://push.example/{uaid}/{}/true", second.channel_id));

    let list = async || {
        let list: ChannelList = parsed(scene.of(&agent, "GET", "", Value::Null).await);
        assert_eq!(list.uaid, uaid);
        list.channel_ids
    };
    let mut both = [channel_id, second.channel_id];
    both.sort();
    assert_eq!(list().await, both);

    let answer = scene.of(&agent, "PUT", "", json!({"token": "cQ3:another-token"})).await;
    assert_eq!((answer.status, answer.json), (200, json!({})));
    // Its store of channels has them without dashes.
    let one = format!("/subscription/{}", both[0].replace('-', ""));
    let answer = scene.of(&agent, "DELETE", &one, none.clone()).await;
    assert_eq!((answer.status, answer.json), (200, json!({})));
    assert_eq!(list().await, both[1..]);

    let answer = scene.of(&agent, "DELETE", "", none.clone()).await;
    assert_eq!((answer.status, answer.json), (200, json!({})));
    // A 410 with errno 103 makes it register anew.
    assert_eq!(scene.of(&agent, "GET", "", none).await.code(), (410, 103));
}

#[actix_web::test]
async fn a_uaid_is_answered_as_it_was_written() {
    let scene = Scene::new(|_| ()).await;
    let agent = scene.agent().await;
    let dashed = state_machine::Chid(state_machine::Uaid::parse(&agent.uaid).unwrap().0);
    for text in [agent.uaid.clone(), dashed.to_string(), agent.uaid.to_uppercase()] {
        let agent = Agent { uaid: text.clone(), ..agent.clone() };
        let answer = scene.of(&agent, "GET", "/", Value::Null).await;
        assert_eq!(answer.json["uaid"], text);
    }
}

#[actix_web::test]
async fn a_channel_has_the_id_that_the_agent_names_and_may_be_named_again() {
    let scene = Scene::new(|_| ()).await;
    let agent = scene.agent().await;
    for text in [CHID.to_owned(), CHID.replace('-', ""), CHID.to_uppercase()] {
        let named = json!({"channelID": text});
        let answer = scene.of(&agent, "POST", "/subscription", named).await;
        assert_eq!((answer.status, &answer.json["channelID"]), (200, &json!(CHID)));
    }
    let list = scene.of(&agent, "GET", "", Value::Null).await;
    assert_eq!(list.json["channelIDs"].as_array().unwrap().len(), 2);
}

/// Each field missing, of a wrong type, too long and malformed.
#[actix_web::test]
async fn an_invalid_field_is_refused_with_its_status_and_number() {
    let long = |length: usize| "x".repeat(length);
    let object = |length: usize| json!({"a": long(length - r#"{"a":""}"#.len())});
    let off_curve = KEY.replace("gDll6e", "gDll6f");
    let fcm = |fields: Value| ("/v1/fcm/1234/registration", fields);
    let with = |name: &str, value: Value| fcm(json!({"token": TOKEN, name: value}));
    let aps = |value: Value| ("/v1/apns/ios/registration", json!({"token": TOKEN, "aps": value}));
    let ok = (200, 0);
    for ((path, body), expected) in [
        (fcm(Value::Null), (400, 108)),
        (fcm(json!([])), (400, 108)),
        (fcm(json!("text")), (400, 108)),
        (fcm(json!({})), (400, 108)),
        (fcm(json!({"token": null})), (400, 108)),
        (fcm(json!({"token": 7})), (400, 108)),
        (fcm(json!({"token": ""})), (400, 108)),
        (fcm(json!({"token": long(7)})), (400, 108)),
        (fcm(json!({"token": long(8)})), ok),
        (fcm(json!({"token": long(TOKEN_CHARS_MAX)})), ok),
        (fcm(json!({"token": long(TOKEN_CHARS_MAX + 1)})), (400, 108)),
        (fcm(json!({"token": "with a space"})), (400, 108)),
        (fcm(json!({"token": "with\na line"})), (400, 108)),
        (fcm(json!({"token": "nön-ascii-token"})), (400, 108)),
        (fcm(json!({"token": long(BODY_BYTES_MAX)})), (413, 104)),
        (with("unknown", json!(1)), ok),
        (with("channelID", Value::Null), ok),
        (with("channelID", json!(CHID)), ok),
        (with("channelID", json!(7)), (400, 108)),
        (with("channelID", json!("")), (400, 108)),
        (with("channelID", json!(&CHID[1..])), (400, 108)),
        (with("channelID", json!(format!("{{{CHID}}}"))), (400, 108)),
        (with("key", Value::Null), ok),
        (with("key", json!(KEY)), ok),
        (with("key", json!(format!("{KEY}="))), ok),
        (with("key", json!(7)), (400, 110)),
        (with("key", json!("")), (400, 110)),
        (with("key", json!(&KEY[1..])), (400, 110)),
        (with("key", json!(off_curve)), (400, 110)),
        (with("key", json!(long(7000))), (400, 110)),
        (with("aps", json!(7)), ok),
        (aps(Value::Null), ok),
        (aps(json!({"alert": {"title": "a"}})), ok),
        (aps(json!(r#"{"alert":"a"}"#)), ok),
        (aps(object(APS_BYTES_MAX)), ok),
        (aps(object(APS_BYTES_MAX + 1)), (400, 108)),
        (aps(json!([])), (400, 108)),
        (aps(json!("no object")), (400, 108)),
        (aps(json!(7)), (400, 108)),
    ] {
        let scene = Scene::new(|_| ()).await;
        let answer = scene.ask("POST", path, None, &body).await;
        assert_eq!(answer.code(), expected, "{path} {body}: {answer:?}");
        assert!(expected == ok || answer.json["message"].is_string(), "{answer:?}");
    }
}

#[actix_web::test]
async fn an_invalid_type_application_path_or_method_is_refused() {
    let scene = Scene::new(|_| ()).await;
    let agent = scene.agent().await;
    for (method, path, expected) in [
        ("POST", "/v1/gcm/1234/registration", (410, 108)),
        ("POST", "/v1/adm/1234/registration", (410, 108)),
        ("POST", "/v1/webpush/1234/registration", (404, 108)),
        ("POST", "/v1/fcm/unknown/registration", (400, 108)),
        ("POST", "/v1/apns/1234/registration", (400, 108)),
        ("PUT", "/v1/fcm/1234/registration", (405, 999)),
        ("GET", "/v1/fcm/1234/registration/", (405, 999)),
        ("POST", &agent.path(), (405, 999)),
        ("GET", &format!("{}/subscription", agent.path()), (405, 999)),
        ("GET", &format!("{}/subscription/{}", agent.path(), agent.channel), (405, 999)),
        ("GET", &format!("{}/channels", agent.path()), (404, 117)),
    ] {
        let body = json!({"token": TOKEN});
        let answer = scene.ask(method, path, Some(&agent.secret), &body).await;
        assert_eq!(answer.code(), expected, "{method} {path}");
        assert_eq!(answer.header("allow").is_some(), expected.0 == 405, "{answer:?}");
        assert!(answer.header("cache-control").is_some(), "{answer:?}");
    }
}

/// Every request that needs the secret: method, path below the registrations, body.
fn authorized(uaid: &str) -> Vec<(&'static str, String, Value)> {
    let path = format!("/v1/fcm/1234/registration/{uaid}");
    vec![
        ("GET", path.clone(), Value::Null),
        ("PUT", path.clone(), json!({"token": TOKEN})),
        ("POST", format!("{path}/subscription"), json!({})),
        ("DELETE", format!("{path}/subscription/{CHID}"), Value::Null),
        ("DELETE", path, Value::Null),
    ]
}

#[actix_web::test]
async fn a_wrong_secret_is_answered_like_an_unknown_uaid() {
    let scene = Scene::new(|_| ()).await;
    let (agent, other) = (scene.agent().await, scene.agent().await);
    let unknown = "00000000000040008000000000000000";
    for secret in [None, Some(""), Some("x"), Some(other.secret.as_str())] {
        let of_known = authorized(&agent.uaid).into_iter();
        for ((method, known, body), (_, unknown, _)) in of_known.zip(authorized(unknown)) {
            let answer = scene.ask(method, &known, secret, &body).await;
            assert_eq!(answer.code(), (401, 109), "{method} {known}");
            assert!(answer.header("www-authenticate").is_some());
            assert_eq!(scene.ask(method, &unknown, secret, &body).await, answer);
        }
    }
    let malformed =
        scene.ask("GET", "/v1/fcm/1234/registration/x", Some(&agent.secret), &Value::Null);
    assert_eq!(malformed.await.code(), (401, 109));
    let list = scene.of(&agent, "GET", "", Value::Null).await;
    assert_eq!(list.json["channelIDs"], json!([agent.channel]));
}

#[actix_web::test]
async fn a_right_secret_without_a_record_makes_the_agent_register_anew() {
    let scene = Scene::new(|_| ()).await;
    let agent = scene.agent().await;
    let left = scene.of(&agent, "DELETE", "", Value::Null).await;
    assert_eq!(left.status, 200);
    for (method, path, body) in authorized(&agent.uaid) {
        let answer = scene.ask(method, &path, Some(&agent.secret), &body).await;
        assert_eq!(answer.code(), (410, 103), "{method} {path}");
    }
}

#[actix_web::test]
async fn the_store_is_not_read_before_the_secret_is_verified() {
    let scene = Scene::new(|_| ()).await;
    let agent = scene.agent().await;
    scene.store.close().await.unwrap();
    let answer = scene.ask("GET", &agent.path(), Some("0"), &Value::Null).await;
    assert_eq!(answer.code(), (401, 109));
    let answer = scene.of(&agent, "GET", "", Value::Null).await;
    assert_eq!(answer.code(), (503, 201));
    assert_eq!(answer.header("retry-after"), Some("5"));
}

#[actix_web::test]
async fn the_scheme_of_the_secret_is_webpush_or_bearer_in_any_case() {
    let scene = Scene::new(|_| ()).await;
    let Agent { uaid, secret, .. } = scene.agent().await;
    let path = format!("/v1/fcm/1234/registration/{uaid}");
    let status = async |headers: &[&str]| {
        let request = headers.iter().fold(TestRequest::with_uri(&path), |request, header| {
            request.append_header(("authorization", header.replace('S', &secret)))
        });
        scene.send(request).await.status
    };
    for header in ["webpush S", "WebPush S", "Bearer S", "BEARER S", " bearer  S "] {
        assert_eq!(status(&[header]).await, 200, "{header}");
    }
    for header in ["S", "webpushS", "vapid S", "webpush S S", "webpush", "webpush "] {
        assert_eq!(status(&[header]).await, 401, "{header}");
    }
    assert_eq!(status(&["webpush S", "webpush S"]).await, 401);
}

#[actix_web::test]
async fn an_unknown_channel_is_gone_and_its_agent_is_not() {
    let scene = Scene::new(|_| ()).await;
    let agent = scene.agent().await;
    for channel in [CHID, "malformed"] {
        let path = format!("/subscription/{channel}");
        let answer = scene.of(&agent, "DELETE", &path, Value::Null).await;
        assert_eq!(answer.code(), (410, 106));
    }
}

#[actix_web::test]
async fn an_agent_has_so_many_channels() {
    let scene = Scene::new(|settings| settings.channels_max = 2).await;
    let agent = scene.agent().await;
    for expected in [(200, 0), (413, 104)] {
        let answer = scene.of(&agent, "POST", "/subscription", json!({})).await;
        assert_eq!(answer.code(), expected);
    }
}

#[actix_web::test]
async fn requests_are_limited_by_address_and_by_agent() {
    let address: SocketAddr = "192.0.2.1:5000".parse().unwrap();
    let register = || {
        let request = TestRequest::post().uri("/v1/fcm/1234/registration");
        request.peer_addr(address).set_json(json!({"token": TOKEN}))
    };
    let limits: [fn(&mut crate::settings::Settings); 3] = [
        |settings| settings.address_connects_per_minute_max = 1,
        |settings| settings.address_new_agents_per_minute_max = 1,
        |settings| settings.address_registers_per_minute_max = 1,
    ];
    for limit in limits {
        let scene = Scene::new(limit).await;
        assert_eq!(scene.send(register()).await.status, 200);
        let answer = scene.send(register()).await;
        assert_eq!(answer.code(), (429, 201));
        assert!(answer.header("retry-after").is_some(), "{answer:?}");
    }
    let scene = Scene::new(|settings| settings.agent_hellos_per_minute_max = 1).await;
    let (agent, other) = (scene.agent().await, scene.agent().await);
    for expected in [200, 429] {
        // A stranger uses up no place of the agent.
        assert_eq!(scene.ask("GET", &agent.path(), Some("0"), &Value::Null).await.status, 401);
        let answer = scene.of(&agent, "GET", "", Value::Null).await;
        assert_eq!(answer.status, expected);
    }
    let answer = scene.of(&other, "GET", "", Value::Null).await;
    assert_eq!(answer.status, 200);
    let scene = Scene::new(|settings| settings.agent_registers_per_minute_max = 1).await;
    let agent = scene.agent().await;
    for expected in [200, 429] {
        let answer = scene.of(&agent, "POST", "/subscription", json!({})).await;
        assert_eq!(answer.status, expected);
    }
    let scene = Scene::new(|settings| settings.connects_per_second_max = 2).await;
    scene.agent().await;
    // The other half of the places is for agents that have a uaid.
    assert_eq!(scene.send(register()).await.code(), (503, 201));
}

#[test]
fn every_error_is_in_the_documentation() {
    let docs = include_str!("../../../docs/protocol.md");
    for (status, errno) in [
        (400, 108),
        (400, 110),
        (401, 109),
        (404, 117),
        (404, 108),
        (405, 999),
        (408, 999),
        (410, 103),
        (410, 106),
        (410, 108),
        (413, 104),
        (429, 201),
        (503, 201),
    ] {
        crate::system::errno::assert_described(status, errno);
        let row = format!("| {status} | {errno} |");
        assert!(docs.contains(&row), "docs/protocol.md has no row {row}");
    }
}

#[actix_web::test]
async fn a_channel_that_no_push_can_reach_is_refused() {
    let listed = VapidKey::parse(KEY).unwrap();
    let allowed = AllowedVapidKeys::from_iter([listed]);
    let scene = Scene::new(|settings| settings.vapid_keys_allowed = allowed).await;
    let base = "/v1/fcm/1234/registration";
    let refused = scene.ask("POST", base, None, &json!({"token": TOKEN})).await;
    assert_eq!(refused.code(), (401, 109));
    let agent = parsed(scene.ask("POST", base, None, &json!({"token": TOKEN, "key": KEY})).await);
    let RegisterResponse { uaid, secret, channel_id: channel, .. } = agent;
    let agent = Agent { uaid, secret, channel };
    assert_eq!(scene.of(&agent, "POST", "/subscription", json!({})).await.code(), (401, 109));
}
