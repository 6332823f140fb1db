//! User agents behind bridges, which register over HTTP.

use serde_json::{Value, json};

use super::ask;
use crate::harness::push_service::APP;
use crate::harness::{Launch, PushService, Server, Signer};

const CHID: &str = "deadbeef-0000-4000-8000-000000000000";

const TOKEN: &str = "token-of-a-phone";

/// A server with bridges, and an agent that has registered.
struct World {
    server: Server,
    /// The push service ends with the test.
    _service: PushService,
    uaid: String,
    authorization: String,
}

/// A request that has the field: method, path below `/v1`, and whether it needs the secret.
type Request = (&'static str, &'static str, bool);

const REGISTER: Request = ("POST", "fcm/APP/registration", false);
const UPDATE: Request = ("PUT", "fcm/APP/registration/UAID", true);
const SUBSCRIBE: Request = ("POST", "fcm/APP/registration/UAID/subscription", true);
const REGISTER_APNS: Request = ("POST", "apns/APP/registration", false);
const UPDATE_APNS: Request = ("PUT", "apns/APP/registration/UAID", true);
const LIST: Request = ("GET", "fcm/APP/registration/UAID", true);
const DROP: Request = ("DELETE", "fcm/APP/registration/UAID", true);
const UNSUBSCRIBE: Request =
    ("DELETE", "fcm/APP/registration/UAID/subscription/deadbeef00004000800000000000dead", true);

impl World {
    async fn start() -> Self {
        let service = PushService::start();
        let file = service.bridges_file().display().to_string();
        let server = Server::launch(Launch::default().with(&["--bridges-file", &file]));
        let request = format!("POST /v1/fcm/{APP}/registration");
        let answer = ask(&server, &request, "", json!({"token": TOKEN}).to_string()).await.json();
        let text = |name: &str| answer[name].as_str().expect("the agent is registered").to_owned();
        let authorization = format!("Authorization: webpush {}\r\n", text("secret"));
        Self { uaid: text("uaid"), authorization, server, _service: service }
    }

    fn request(&self, (method, path, _): Request) -> String {
        format!("{method} /v1/{}", path.replace("APP", APP).replace("UAID", &self.uaid))
    }

    /// Sends the request with this body. The answer must be an error that names the field.
    async fn refuses(
        &self,
        request: Request,
        body: impl AsRef<[u8]>,
        (what, status, errno, names): (&str, u16, u16, &str),
    ) {
        let lines = if request.2 { &*self.authorization } else { "" };
        let request = self.request(request);
        let answer = ask(&self.server, &request, lines, body).await;
        answer.assert_refused(&format!("{request}, {what}"), (status, errno), names);
    }

    /// The agent exists, so nothing that was refused has changed it.
    async fn has_its_agent(&self) {
        let answer = ask(&self.server, &self.request(LIST), &self.authorization, "").await;
        assert_eq!(answer.status, 200, "{answer}");
    }
}

#[actix_web::test]
async fn each_field_of_a_registration_in_each_faulty_form_is_refused_and_named() {
    let world = World::start().await;
    let long = |count: usize| json!("a".repeat(count));
    let (key, other) = (Signer::new().key(), Signer::new().key());
    let faults = [
        (
            "token",
            (400, 108),
            [REGISTER, UPDATE],
            vec![
                ("missing", Value::Null),
                ("empty", json!("")),
                ("too short", long(7)),
                ("too long", long(2049)),
                ("another alphabet", json!("tökén-of-a-phone")),
                ("a space", json!("token of a phone")),
                ("a control character", json!("token\u{1}of-a-phone")),
                ("another type", json!(12_345_678)),
            ],
        ),
        (
            "channelID",
            (400, 108),
            [REGISTER, SUBSCRIBE],
            vec![
                ("empty", json!("")),
                ("too long", json!(CHID.repeat(2))),
                ("another alphabet", json!(CHID.replace('d', "g"))),
                ("a control character", json!(CHID.replacen('d', "\u{1}", 1))),
                ("another type", json!([CHID])),
            ],
        ),
        (
            "key",
            (400, 110),
            [REGISTER, SUBSCRIBE],
            vec![
                ("empty", json!("")),
                ("too long", json!(key.repeat(2))),
                ("another alphabet", json!(key.replacen('B', "!", 1))),
                ("a control character", json!(format!("{key}\u{1}"))),
                ("off the curve", json!(format!("{}{}", &key[..43], &other[43..]))),
                ("another type", json!({"key": key})),
            ],
        ),
        (
            "aps",
            (400, 108),
            [REGISTER_APNS, UPDATE_APNS],
            vec![
                ("empty", json!("")),
                ("too long", json!({"alert": long(1024)})),
                ("no JSON", json!("alert")),
                ("a control character", json!("{\"alert\":\"\u{1}\"}")),
                ("another type", json!(7)),
            ],
        ),
    ];
    for (field, (status, errno), requests, faults) in faults {
        for (what, value) in faults {
            let body = json!({"token": TOKEN, field: value}).to_string();
            for request in requests {
                world.refuses(request, &body, (what, status, errno, field)).await;
            }
        }
    }
    world.has_its_agent().await;
}

#[actix_web::test]
async fn each_faulty_body_secret_and_path_of_a_registration_is_refused_and_named() {
    let world = World::start().await;
    for request in [REGISTER, UPDATE, SUBSCRIBE] {
        for (what, body) in [
            ("no JSON", &b"token=token-of-a-phone"[..]),
            ("half of it", b"{\"token\":\"token-of-a-phone\""),
            ("no object", b"[\"token-of-a-phone\"]"),
            ("not UTF-8", b"{\"token\":\"token-of-a-phone\xff\"}"),
            ("a control character", b"{\"token\":\"token\x01of-a-phone\"}"),
        ] {
            world.refuses(request, body, (what, 400, 108, "body")).await;
        }
        let large = json!({"token": TOKEN, "unknown": "x".repeat(8192)}).to_string();
        world.refuses(request, large, ("too long", 413, 104, "body")).await;
    }
    world.refuses(REGISTER, "", ("empty", 400, 108, "token")).await;

    let secret = world.authorization.trim_end();
    let twice = format!("{secret}\r\n{secret}\r\n");
    let long = format!("{secret}{}\r\n", "0".repeat(5000));
    let other = "Authorization: webpush sécret\r\n";
    let tab = format!("{secret}\t0\r\n");
    for request in [UPDATE, LIST, SUBSCRIBE, UNSUBSCRIBE, DROP] {
        for (what, lines) in [
            ("missing", ""),
            ("empty", "Authorization: \r\n"),
            ("no secret", "Authorization: webpush\r\n"),
            ("twice", &twice),
            ("too long", &long),
            ("another alphabet", other),
            ("a control character", &tab),
        ] {
            let answer = ask(&world.server, &world.request(request), lines, "{}").await;
            answer.assert_refused(&format!("{request:?}, {what}"), (401, 109), "Authorization");
        }
    }

    let (long_type, long_app) = ("f".repeat(5000), "a".repeat(129));
    for (what, path, status, errno, names) in [
        ("an empty type", format!("/{APP}/registration"), 404, 117, "URL"),
        ("a long type", format!("{long_type}/{APP}/registration"), 404, 108, "type"),
        ("an unknown type", format!("FCM/{APP}/registration"), 404, 108, "type"),
        ("a type that is not UTF-8", format!("%ff/{APP}/registration"), 404, 108, "type"),
        ("an empty application", "fcm//registration".to_owned(), 404, 117, "URL"),
        ("an unknown application", "fcm/other/registration".to_owned(), 400, 108, "application"),
        ("a long application", format!("fcm/{long_app}/registration"), 400, 108, "application"),
        ("an application of no UTF-8", "fcm/%ff/registration".to_owned(), 400, 108, "application"),
    ] {
        let body = json!({"token": TOKEN}).to_string();
        let answer = ask(&world.server, &format!("POST /v1/{path}"), "", body).await;
        answer.assert_refused(what, (status, errno), names);
    }
    for uaid in ["x", "%ff", &"0".repeat(33), &format!("{}%00", world.uaid)] {
        let request = format!("GET /v1/fcm/{APP}/registration/{uaid}");
        let answer = ask(&world.server, &request, &world.authorization, "").await;
        answer.assert_error(401, 109);
    }
    for chid in ["x", "%ff", &"0".repeat(37)] {
        let request = format!("{}/subscription/{chid}", world.request(DROP));
        let answer = ask(&world.server, &request, &world.authorization, "").await;
        assert!(answer.assert_error(410, 106).contains("channel"), "{chid}");
    }
    world.has_its_agent().await;
}
