//! Hostile requests to the public port of a real node, in process: no panic, and no status from 500 on.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use actix::System;
use actix_web::App;
use actix_web::body::{BodySize, MessageBody};
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::http::{Method, Uri};
use actix_web::test::{TestRequest, init_service, try_call_service};
use actix_web::web::Data;
use actors::{BridgedAgents, Clock};
use serde_json::json;
use slog::{Discard, Logger, o};
use state_machine::feed::FeedName;
use state_machine::{
    BridgeName, BridgeRecipient, Chid, LastConnect, MessageId, MessageKey, Month, NodeId,
    RouterType, Time, Uaid,
};
use storage::durable;
use storage::store::{BridgedRegistration, Registration, StoreOp};

use super::limits;
use super::listen::BoundSockets;
use super::node::{self, Node, SealedUrls};
use super::sockets::InheritedSockets;
use crate::dev::keypair::KeyPair;
use crate::dev::vapid_sign::{Claims, authorization};
use crate::feeds::http::tokens::{Grant, Scopes};
use crate::fuzz::fuzz;
use crate::push::registration::{RegistrationSecrets, RegistrationService};
use crate::push::routes;
use crate::settings::keys::{KEYS_FILE, Keys};
use crate::settings::value::Value;
use crate::settings::{AllowedVapidKeys, PublicUrl, Role, Settings};

const NOW: Time = Time(1_796_000_000_000);
const UAID: Uaid = Uaid([0xab; 16]);
const CHID: Chid = Chid([0xcd; 16]);

/// An agent behind FCM, the key of its secret, and the secret: the test vector of autopush.
const PHONE: &str = "729e5104f5f04abc9196085340317dea";
const AUTH_KEY: &str = "HJVPy4ZwF4Yz_JdvXTL8hRcwIhv742vC60Tg5Ycrvw8=";
const SECRET: &str = "f694963453adf5dedcc379bbdd6900d692b6e09f1c91f44169bfcd2f941bf36c";

/// Bytes of an answer's body: errors are short, and pages of the feed have few values.
const ANSWER_BYTES_MAX: u64 = 2 << 20;

#[test]
fn no_hostile_request_makes_the_server_panic_or_fail() {
    let dir = tempfile::tempdir().unwrap();
    let system = System::new();
    let node = system.block_on(node(dir.path()));
    let service = system.block_on(async {
        let apis = |service: &mut _| node.apis.routes(service);
        init_service(App::new().configure(routes::of(&node.app)).configure(apis)).await
    });
    let ask = |bytes: &[u8]| {
        // An answer that waits for more, such as an event stream, is dropped within the runtime.
        let request = request(bytes)?.to_request();
        let answer = system.block_on(async {
            let answer = try_call_service(&service, request).await;
            let answer = answer.map(|answer| answer.into_parts().1);
            let answer = answer.unwrap_or_else(|error| error.error_response());
            (answer.status(), answer.body().size())
        });
        Some(answer)
    };
    let (samples, expected): (Vec<_>, Vec<_>) = samples(&node).into_iter().unzip();
    let answered = samples.iter().filter_map(|sample| Some(ask(sample.as_bytes())?.0.as_u16()));
    assert_eq!(answered.collect::<Vec<_>>(), expected);
    fuzz("public_requests", &samples, |bytes| {
        let Some((status, size)) = ask(bytes) else { return };
        assert!(!status.is_server_error(), "{status}");
        assert!(!matches!(size, BodySize::Sized(bytes) if bytes > ANSWER_BYTES_MAX));
    });
}

/// A node of one process with a user agent that is offline, and no waiting. Keys and URL are fixed, so that a kept
/// request remains what it was.
pub(super) async fn node(dir: &std::path::Path) -> Node {
    let keys = format!("crypto_keys = [\"{}\"]", "A".repeat(43));
    durable::create(&dir.join(KEYS_FILE), keys).unwrap();
    let settings = Settings {
        data_dir: dir.to_owned(),
        listen: "127.0.0.1:0".parse().unwrap(),
        public_url: Some(PublicUrl::parse("https://push.example.net").unwrap()),
        connects_per_second_max: 0,
        feed_wait_max_s: 0,
        feed_keys_max: 10_000_000,
        ..Settings::default()
    };
    let sockets =
        BoundSockets::bind(Role::All, &settings, &mut InheritedSockets::default()).unwrap();
    let (clock, log) = (Clock::starting_at(NOW), Logger::root(Discard, o!()));
    let log = (&log, &Arc::default());
    let mut node = node::assemble(Role::All, &settings, &sockets, &clock, log).await.unwrap();
    let month = Month::of(NOW);
    let registration = Registration {
        uaid: UAID,
        router_type: RouterType::WebPush,
        node: NodeId::new("elsewhere"),
        connected_at: NOW,
        last_connect: LastConnect::of(NOW, UAID, LastConnect::SHARDS),
        create_in: Some(month),
    };
    node.store.execute(StoreOp::Register(registration)).await.unwrap();
    let channels = BTreeSet::from([CHID]);
    node.store.execute(StoreOp::AddChannels { uaid: UAID, month, channels }).await.unwrap();
    node.apis.registration = Some(Data::new(registration_api(&node, month).await));
    node
}

/// The registration API with the agent [`PHONE`].
async fn registration_api(node: &Node, month: Month) -> RegistrationService {
    let keys = Keys::from_texts(&["A".repeat(43)]).unwrap().with_auth_texts(&[AUTH_KEY]).unwrap();
    let (common, uaid) = (&node.app.common, Uaid::parse(PHONE).unwrap());
    let (token, bridge) = ("a-token-of-fcm".into(), BridgeName::Fcm);
    let registration = BridgedRegistration {
        uaid,
        recipient: BridgeRecipient { bridge, app: "1234".into(), token, aps: None },
        connected_at: NOW,
        last_connect: LastConnect::of(NOW, uaid, LastConnect::SHARDS),
        create_in: Some(month),
    };
    node.store.register_bridged(registration).await.unwrap();
    let limits = limits::of_bridged_agents(&Settings::default(), None);
    let (store, clock, log) = (Arc::clone(&common.store), common.clock.clone(), common.log.clone());
    let tokens = Arc::clone(&node.app.endpoints.as_ref().unwrap().tokens);
    RegistrationService {
        vapid_keys: AllowedVapidKeys::default(),
        is_closed: false,
        agents: Arc::new(BridgedAgents::new(store, clock, limits, log.clone())),
        apps: BTreeSet::from([(bridge, "1234".into())]),
        secrets: RegistrationSecrets::new(keys.auth_keys()),
        urls: SealedUrls::boxed(&node.origin, tokens),
        limits: Arc::clone(&common.limits),
        body_timeout: Duration::from_secs(10),
        log,
    }
}

/// Requests of each kind, and the statuses of their answers. Most pushes have a TTL of 0 and are not written.
fn samples(node: &Node) -> Vec<(String, u16)> {
    let endpoints = node.app.endpoints.as_ref().unwrap();
    let endpoint = endpoints.tokens.encrypt(UAID, CHID, None);
    let claims = Claims { aud: node.origin.clone(), exp: NOW.as_secs() + 3600, sub: None };
    let vapid = authorization(&KeyPair::from_bytes(&[7; 32]).unwrap(), &claims);
    let id = MessageId::from_uuid_v7(7, false);
    let message = endpoints.message_urls.encrypt(UAID, &MessageKey { id, chid: CHID, topic: None });
    let grant = Grant { feed: FeedName::parse("x").unwrap(), scopes: Scopes::Both, expires: None };
    let token = node.apis.feeds.as_ref().unwrap().tokens.mint(&grant);
    let bearer = format!("authorization: Bearer {token}");
    let origin = &node.origin;
    let handshake = "connection: upgrade\nupgrade: websocket\nsec-websocket-version: 13\n\
        sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==";
    let aesgcm = "content-encoding: aesgcm\nencryption: keyid=p256dh;salt=c2FsdA\n\
        crypto-key: keyid=p256dh;dh=BGVuYw,p256ecdsa=BGVuYw";
    let aes128gcm = "topic: mail\nurgency: low\ncontent-encoding: aes128gcm";
    let preflight = "origin: https://a.example\naccess-control-request-method: POST";
    let matrix = json!({"notification": {
        "event_id": "$a", "room_id": "!b:c.example", "prio": "low", "counts": {"unread": 2},
        "devices": [{"app_id": "d", "pushkey": format!("{origin}{endpoint}"), "tweaks": {}}],
    }});
    let (phones, secret) =
        ("/v1/fcm/1234/registration", format!("authorization: webpush {SECRET}"));
    let events = "accept: text/event-stream\nlast-event-id: 0";
    vec![
        (format!("POST {endpoint}\nttl: 0\n\n"), 201),
        (format!("POST {endpoint}\nttl: 60\n{aes128gcm}\n\nbody"), 201),
        (format!("POST {endpoint}\nttl: 0\n{aesgcm}\n\nbody"), 201),
        (format!("POST {endpoint}\nttl: 0\nauthorization: {vapid}\n\n"), 201),
        (format!("OPTIONS {endpoint}\n{preflight}\n\n"), 204),
        (format!("DELETE {message}\n\n"), 404),
        (format!("GET /\norigin: {origin}\n{handshake}\n\n"), 101),
        (format!("PUT /v1/feeds/x/a%20key\n{bearer}\n\nvalue"), 201),
        (format!("GET /v1/feeds/x?after=0&limit=2&wait=0\n{bearer}\n\n"), 200),
        (format!("GET /v1/feeds/x\n{bearer}\n{events}\n\n"), 200),
        (format!("DELETE /v1/feeds/x/b\n{bearer}\n\n"), 404),
        (format!("POST /v1/feeds/x/b/republish\n{bearer}\n\n"), 404),
        (format!("POST /_matrix/push/v1/notify\n\n{matrix}"), 200),
        ("GET /_matrix/push/v1/notify\n\n".to_owned(), 200),
        (
            format!(
                "POST {phones}\n\n{{\"token\":\"a-token-of-fcm\",\"channelID\":\"{CHID}\",\"key\":null}}"
            ),
            200,
        ),
        (format!("PUT {phones}/{PHONE}\n{secret}\n\n{{\"token\":\"a-newer-token\"}}"), 200),
        (format!("POST {phones}/{PHONE}/subscription/\n{secret}\n\n"), 200),
        (format!("GET {phones}/{PHONE}\n{secret}\n\n"), 200),
        (format!("DELETE {phones}/{PHONE}/subscription/{CHID}\n{secret}\n\n"), 410),
        ("GET /health\naccept: */*\n\n".to_owned(), 200),
    ]
}

/// A request from lines: method and target, headers, an empty line, and the body. `None` if it is none for the HTTP
/// server either.
fn request(bytes: &[u8]) -> Option<TestRequest> {
    let end = bytes.windows(2).position(|two| two == b"\n\n");
    let (head, body) = end.map_or((bytes, &b""[..]), |end| (&bytes[..end], &bytes[end + 2..]));
    let mut lines = head.split(|byte| *byte == b'\n');
    let (method, target) = std::str::from_utf8(lines.next()?).ok()?.split_once(' ')?;
    target.parse::<Uri>().ok().filter(|uri| uri.path().starts_with('/'))?;
    let request = TestRequest::with_uri(target).method(Method::from_bytes(method.as_bytes()).ok()?);
    let request =
        lines.filter_map(header).fold(request, |request, header| request.append_header(header));
    Some(request.set_payload(body.to_vec()))
}

fn header(line: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let name = HeaderName::from_bytes(&line[..colon]).ok()?;
    Some((name, HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?))
}
