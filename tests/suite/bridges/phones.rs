//! Phones that register over HTTP at a server process, and pushes to them through a bridge.

use std::fs;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::future::join_all;
use hyper::Method;
use kalends::settings::keys::KEYS_FILE;
use serde_json::{Value, json};

use crate::harness::push_service::APP;
use crate::harness::{
    AT_ONCE, Agent, Answer, Cluster, ClusterPlan, Launch, Post, PushService, Reply, Role, Sender,
    Server, until, within,
};

const DAY_S: u64 = 24 * 60 * 60;

/// FCM's answer for a token that is not valid any more.
const UNREGISTERED: &str = r#"{"error":{"code":404,"status":"NOT_FOUND","details":[{
    "@type":"type.googleapis.com/google.firebase.fcm.v1.FcmError","errorCode":"UNREGISTERED"}]}}"#;

/// A server with bridges to a local push service.
struct World {
    service: PushService,
    server: Server,
    sender: Sender,
}

/// An agent behind a bridge.
pub(crate) struct Phone {
    /// Its path at the server.
    path: String,
    secret: String,
    channel: String,
    pub(crate) endpoint: String,
}

impl Phone {
    /// A request for what is `below` its registration, with its secret.
    pub(crate) fn request<'a>(
        &self,
        sender: &'a Sender,
        origin: &str,
        method: Method,
        below: &str,
        body: &Value,
    ) -> Post<'a> {
        let request = sender.request(method, &format!("{origin}{}{below}", self.path));
        let request = request.header("authorization", &format!("webpush {}", self.secret));
        let body = if body.is_null() { String::new() } else { body.to_string() };
        request.raw_body(body)
    }
}

impl World {
    fn start() -> Self {
        Self::with(&[])
    }

    fn with(arguments: &[&str]) -> Self {
        let service = PushService::start();
        let server = Server::launch(bridged(&service, arguments));
        Self { service, server, sender: Sender::new() }
    }

    async fn register(&self, bridge: &str, token: &str) -> Phone {
        register(&self.sender, &self.server.origin(), bridge, token).await
    }

    async fn ask(&self, phone: &Phone, method: Method, below: &str, body: &Value) -> Answer {
        ask(&self.sender, &self.server.origin(), phone, method, below, body).await
    }

    async fn channels(&self, phone: &Phone) -> Vec<String> {
        let answer = self.ask(phone, Method::GET, "", &Value::Null).await;
        channels(&answer)
    }

    /// Starts the ended server again. Its former connections are closed, so the sender is a new one.
    fn restart(&mut self, launch: Launch) {
        self.server.restart_as(launch);
        self.sender = Sender::new();
    }

    /// The tokens and channels of the messages that FCM has received.
    fn received(&self) -> Vec<(String, String)> {
        let messages = self.service.messages();
        let messages = messages.iter().map(|received| &received.body["message"]);
        messages
            .map(|message| (text(&message["token"]), text(&message["android"]["data"]["chid"])))
            .collect()
    }
}

fn bridged(service: &PushService, arguments: &[&str]) -> Launch {
    let file = service.bridges_file();
    let file = file.to_str().expect("the path is text");
    Launch::default().with(&["--bridges-file", file]).with(arguments)
}

pub(crate) async fn register(sender: &Sender, origin: &str, bridge: &str, token: &str) -> Phone {
    let base = format!("/v1/{bridge}/{APP}/registration");
    let body = json!({"token": token, "key": null}).to_string();
    let request = sender.request(Method::POST, &format!("{origin}{base}"));
    let answer = request.header("content-type", "application/json").raw_body(body).send().await;
    assert_eq!(answer.status, 200, "{answer}");
    let json = answer.json();
    let [uaid, secret, channel, endpoint] =
        ["uaid", "secret", "channelID", "endpoint"].map(|name| text(&json[name]));
    Phone { path: format!("{base}/{uaid}"), secret, channel, endpoint }
}

fn text(value: &Value) -> String {
    value.as_str().expect("it is a text").to_owned()
}

async fn ask(
    sender: &Sender,
    origin: &str,
    phone: &Phone,
    method: Method,
    below: &str,
    body: &Value,
) -> Answer {
    phone.request(sender, origin, method, below, body).send().await
}

fn channels(answer: &Answer) -> Vec<String> {
    assert_eq!(answer.status, 200, "{answer}");
    serde_json::from_value(answer.json()["channelIDs"].clone()).expect("it is a list of texts")
}

#[actix_web::test]
async fn a_closed_server_registers_no_phone_and_serves_those_that_it_has() {
    let mut world = World::start();
    let phone = world.register("fcm", "token-one").await;
    world.server.kill();
    world.restart(bridged(&world.service, &["--access=token"]));
    let path = format!("{}/v1/fcm/{APP}/registration", world.server.origin());
    let body = json!({"token": "token-two", "key": null}).to_string();
    let request = world.sender.request(Method::POST, &path).raw_body(body);
    let answer = request.header("content-type", "application/json").send().await;
    assert_eq!(answer.status, 401, "{answer}");
    assert_eq!(world.channels(&phone).await, std::slice::from_ref(&phone.channel));
    world.sender.push(&phone.endpoint, "it is served").await;
    until(AT_ONCE, "the push arrives", async || world.received().len() == 1).await;
}

#[actix_web::test]
async fn a_flood_to_one_phone_leaves_places_to_another_and_health_counts_it() {
    let world = World::with(&["--bridge-pushes-in-flight-max=20", "--bridge-timeout-ms=600000"]);
    let flooded = world.register("fcm", "token-one").await;
    let victim = world.register("fcm", "token-two").await;
    world.service.reply_always(Reply::Silence);
    let endpoint = flooded.endpoint.clone();
    let flood = actix_web::rt::spawn(async move {
        let sender = Sender::new();
        join_all((0..40).map(|_| sender.post(&endpoint).ttl(60).send())).await
    });
    let health = async || {
        let answer = world.server.health().await;
        assert_eq!(answer.status, 200, "{answer}");
        answer.json()
    };
    until(AT_ONCE, "35 pushes are refused", async || health().await["bridge_pushes_refused"] == 35)
        .await;
    let counts = json!({"in_flight": 5, "available": true, "outcomes": {}});
    assert_eq!(health().await["bridges"][format!("fcm/{APP}")], counts);
    world.service.reply_always(Reply::default());
    assert_eq!(world.sender.post(&victim.endpoint).ttl(60).send().await.status, 201);
    flood.abort();
}

#[actix_web::test]
async fn a_bridge_that_is_unavailable_does_not_make_the_server_unhealthy() {
    let world = World::start();
    let phone = world.register("fcm", "token-one").await;
    world.service.reply_always(Reply::json(503, "").header("retry-after", "30"));
    assert_eq!(world.sender.post(&phone.endpoint).ttl(60).send().await.status, 502);
    let answer = world.server.health().await;
    let counts = json!({"in_flight": 0, "available": false, "outcomes": {"unavailable": 1}});
    assert_eq!(answer.status, 200, "{answer}");
    assert_eq!(answer.json()["bridges"][format!("fcm/{APP}")], counts);
}

#[actix_web::test]
async fn a_phone_registers_and_receives_its_pushes_from_fcm() {
    let world = World::start();
    let phone = world.register("fcm", "a-token-of-fcm").await;
    let answer = world.sender.push(&phone.endpoint, "a message").await;
    assert!(answer.location().starts_with(&world.server.origin()));
    assert_eq!(world.received(), [("a-token-of-fcm".to_owned(), phone.channel.clone())]);

    let answer = world.ask(&phone, Method::POST, "/subscription", &json!({})).await;
    assert_eq!(answer.status, 200, "{answer}");
    let second = answer.json();
    let new = json!({"token": "a-newer-token"});
    assert_eq!(world.ask(&phone, Method::PUT, "", &new).await.status, 200);
    world.sender.push(&text(&second["endpoint"]), "to the second").await;
    let expected = ("a-newer-token".to_owned(), text(&second["channelID"]));
    assert_eq!(world.received()[1], expected);

    let below = format!("/subscription/{}", phone.channel);
    assert_eq!(world.ask(&phone, Method::DELETE, &below, &Value::Null).await.status, 200);
    let post = || world.sender.post(&phone.endpoint).ttl(60).body("to a channel that is gone");
    post().send().await.assert_error(410, 106);
    assert_eq!(world.ask(&phone, Method::DELETE, "", &Value::Null).await.status, 200);
    post().send().await.assert_error(410, 103);
    world.ask(&phone, Method::GET, "", &Value::Null).await.assert_error(410, 103);
    assert_eq!(world.received().len(), 2);
}

/// Sends a notification of a Matrix server, which must be accepted.
async fn notifies(world: &World, notification: &Value) {
    let url = format!("{}/_matrix/push/v1/notify", world.server.origin());
    let request = json!({"notification": notification}).to_string();
    let answer = world.sender.post(&url).raw_body(request).send().await;
    assert_eq!((answer.status, answer.json()), (200, json!({"rejected": []})), "{answer}");
}

#[actix_web::test]
async fn a_notification_of_matrix_that_is_too_large_for_a_bridge_is_reduced() {
    let world = World::with(&["--payload-bytes-max=20000"]);
    let phone = world.register("fcm", "a-token-of-fcm").await;
    let devices = json!([{"app_id": "a", "pushkey": phone.endpoint}]);
    // The ids of the second one are too large as well: it is given up, and not repeated for ever.
    for event_id in ["$a".to_owned(), "$".repeat(6000)] {
        let content = "x".repeat(8000);
        notifies(&world, &json!({"event_id": event_id, "content": content, "devices": devices}))
            .await;
        assert_eq!(world.received().len(), 1);
    }
}

#[actix_web::test]
async fn a_phone_registers_and_receives_its_pushes_from_apns() {
    let world = World::start();
    let token = "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0";
    let phone = world.register("apns", token).await;
    world.sender.push(&phone.endpoint, "a message").await;
    let received = &world.service.messages()[0];
    assert_eq!(received.path, format!("/3/device/{token}"));
    assert_eq!(received.body["chid"], phone.channel);
}

#[actix_web::test]
async fn a_server_without_bridges_has_no_registrations() {
    let server = Server::start();
    let url = format!("{}/v1/fcm/{APP}/registration", server.origin());
    let sender = Sender::new();
    let request = sender.request(Method::POST, &url);
    request.raw_body(r#"{"token":"a-token-of-fcm"}"#).send().await.assert_error(404, 117);
    let keys = fs::read_to_string(server.data_dir().join(KEYS_FILE)).expect("there are keys");
    assert!(!keys.contains("auth_keys ="), "a key that nothing needs");
}

#[actix_web::test]
async fn registrations_and_their_secrets_survive_kill_9() {
    let mut world = World::start();
    let phones = join_all((0..20).map(|_| world.register("fcm", "a-token-of-fcm"))).await;
    world.server.kill();
    world.restart(bridged(&world.service, &[]));
    for phone in &phones {
        assert_eq!(world.channels(phone).await, [phone.channel.as_str()]);
        world.sender.push(&phone.endpoint, "after the restart").await;
    }
    assert_eq!(world.received().len(), phones.len());
}

#[actix_web::test]
async fn a_push_that_the_bridge_has_and_that_kill_9_ends_gets_no_201_and_may_be_repeated() {
    let mut world = World::start();
    let phone = world.register("fcm", "a-token-of-fcm").await;
    world.service.reply(Reply::Silence);
    let post = world.sender.post(&phone.endpoint).ttl(3600).body("sent").try_send();
    let (service, server) = (&world.service, &mut world.server);
    let killed = async {
        until(AT_ONCE, "the bridge has the message", async || !service.messages().is_empty()).await;
        server.kill();
    };
    let (answer, ()) = tokio::join!(post, killed);
    assert!(answer.is_err(), "the bridge has not answered: {answer:?}");

    world.restart(bridged(&world.service, &[]));
    world.sender.push(&phone.endpoint, "sent").await;
    let expected = ("a-token-of-fcm".to_owned(), phone.channel.clone());
    assert_eq!(world.received(), [expected.clone(), expected]);
}

#[actix_web::test]
async fn phones_that_never_connect_are_moved_to_the_month_by_a_push_or_a_request() {
    let mut world = World::start();
    let (pushed, asked) = (
        world.register("fcm", "token-of-pushed").await,
        world.register("fcm", "token-of-asked").await,
    );
    for days in [35, 70, 105] {
        world.server.terminate();
        let ahead = format!("--clock-offset-s={}", days * DAY_S);
        world.restart(bridged(&world.service, &["--dev", &ahead]));
        assert_eq!(world.channels(&asked).await, [asked.channel.as_str()]);
        world.sender.push(&pushed.endpoint, "of this month").await;
        world.sender.push(&asked.endpoint, "of this month").await;
    }
    assert_eq!(world.channels(&pushed).await, [pushed.channel.as_str()]);
    assert_eq!(world.received().len(), 6);
}

#[actix_web::test]
async fn a_recipient_that_the_bridge_does_not_know_loses_its_record() {
    let world = World::start();
    let (phone, other) = (
        world.register("fcm", "a-token-of-fcm").await,
        world.register("fcm", "another-token").await,
    );
    world.service.reply(Reply::json(404, UNREGISTERED));
    let post = || world.sender.post(&phone.endpoint).ttl(60).body("to nothing");
    post().send().await.assert_error(410, 106);
    post().send().await.assert_error(410, 103);
    world.ask(&phone, Method::GET, "", &Value::Null).await.assert_error(410, 103);
    world.sender.push(&other.endpoint, "to the other").await;
}

#[actix_web::test]
async fn a_bridge_that_hangs_delays_no_push_to_a_websocket() {
    const BOUND: usize = 20;
    /// So that each has a quarter of the bound, which is what one phone may have.
    const PHONES: usize = 4;
    let bound = BOUND.to_string();
    let flags = ["--bridge-pushes-in-flight-max", &bound, "--bridge-timeout-ms", "600000"];
    let world = World::with(&flags);
    let mut phones = Vec::new();
    for number in 0..=PHONES {
        phones.push(world.register("fcm", &format!("token-of-{number}")).await);
    }
    let (mut agent, channel) = Agent::subscribed(&world.server).await;
    world.service.reply_always(Reply::Silence);
    let waiting: Vec<_> = (0..BOUND)
        .map(|number| {
            let (sender, endpoint) =
                (world.sender.clone(), phones[number % PHONES].endpoint.clone());
            actix_web::rt::spawn(async move {
                sender.post(&endpoint).ttl(60).body("waits").send().await
            })
        })
        .collect();
    let is_full = async || world.service.messages().len() == BOUND;
    until(AT_ONCE, "the bridge has as many as may be in flight", is_full).await;
    let refused = world.sender.post(&phones[PHONES].endpoint).ttl(60).body("one more").send().await;
    refused.assert_error(429, 201);
    assert!(refused.header("retry-after").is_some(), "{refused}");
    for number in 0..20 {
        let body = format!("message {number}");
        let pushed = world.sender.push_to(&mut agent, &channel, &body);
        within(AT_ONCE, "a push to the agent", pushed).await;
    }
    assert!(waiting.iter().all(|post| !post.is_finished()), "the bridge has answered nothing");
    assert_eq!(world.service.messages().len(), BOUND);
}

#[actix_web::test]
async fn endpoint_nodes_share_registrations_and_need_an_auth_key() {
    let service = PushService::start();
    let file = service.bridges_file();
    let file = ["--bridges-file", file.to_str().expect("the path is text")];
    let cluster = Cluster::launch(ClusterPlan::of(1, 2).with_endpoint_arguments(&file));
    let [one, two] = [0, 1].map(|node| cluster.endpoint_nodes[node].origin());
    let sender = Sender::new();
    let phone = register(&sender, &one, "fcm", "a-token-of-fcm").await;
    let answer = ask(&sender, &two, &phone, Method::GET, "", &Value::Null).await;
    assert_eq!(channels(&answer), [phone.channel.as_str()]);
    for origin in [&one, &two] {
        let (_, path) = phone.endpoint.split_once("/wpush/").expect("it is an endpoint");
        sender.push(&format!("{origin}/wpush/{path}"), "a message").await;
    }
    assert_eq!(service.messages().len(), 2);

    let mut launch = cluster.launch_of(Role::Endpoint);
    let without = |keys: String| keys.split("auth_keys").next().map(str::to_owned);
    launch.keys = launch.keys.and_then(without);
    let refused = Server::try_launch(launch).err().expect("it has no auth key").to_string();
    assert!(refused.contains("no auth_keys") && refused.contains("kalends keys auth"), "{refused}");
}

#[actix_web::test]
async fn a_server_with_phones_makes_no_auth_key_in_place_of_a_lost_one() {
    let mut world = World::start();
    world.server.logged("added the first of the auth_keys").await;
    let phone = world.register("fcm", "a-token-of-fcm").await;
    world.server.terminate();
    let path = world.server.data_dir().join(KEYS_FILE);
    let keys = fs::read_to_string(&path).expect("there are keys");
    let (others, _) = keys.split_once("auth_keys =").expect("there is an auth key");
    fs::write(&path, others).expect("the file can be written");
    let refused = world.server.try_restart().expect_err("its auth key is lost").to_string();
    assert!(refused.contains("has no auth_keys, which made their secrets"), "{refused}");
    fs::write(&path, &keys).expect("the file can be written");
    world.restart(bridged(&world.service, &[]));
    assert_eq!(world.channels(&phone).await, [phone.channel.as_str()]);
}

#[actix_web::test]
async fn a_wrong_file_of_bridges_ends_the_start() {
    let service = PushService::start();
    service.write_bridges("[fcm.example]\nservice_account = \"missing.json\"\n");
    let refused = Server::try_launch(bridged(&service, &[])).err().expect("the file is wrong");
    assert!(refused.to_string().contains("missing.json"), "{refused}");
}

#[actix_web::test]
async fn the_first_failure_and_an_unknown_application_are_in_the_log() {
    let mut world = World::start();
    world.server.logged("fcm.example, apns.certified, apns.example").await;
    let phone = world.register("fcm", "a-token-of-fcm").await;
    let refused = Reply::json(400, r#"{"error":"invalid_grant"}"#);
    world.service.reply_to_token_request(refused);
    let post = async |world: &World| {
        world.sender.post(&phone.endpoint).ttl(60).body("a message").send().await
    };
    post(&world).await.assert_error(502, 901);
    world.server.logged("a bridge refuses the credentials of an application").await;

    let text = world.service.bridges_toml().replace("[fcm.example]", "[fcm.other]");
    world.service.write_bridges(&text);
    world.server.terminate();
    world.restart(bridged(&world.service, &[]));
    post(&world).await.assert_error(502, 900);
    world.server.logged("a push for an application that bridges_file does not have").await;
}

#[actix_web::test]
async fn a_matrix_notification_that_a_bridge_finds_too_large_is_reduced() {
    let world = World::start();
    let phone = world.register("fcm", "a-token-of-fcm").await;
    let notification = json!({
        "event_id": "$a",
        "content": {"body": "x".repeat(3500)},
        "devices": [{"app_id": "a", "pushkey": phone.endpoint}],
    });
    notifies(&world, &notification).await;
    let received = &world.service.messages()[0].body["message"]["android"]["data"]["body"];
    let data = URL_SAFE_NO_PAD.decode(received.as_str().expect("it is a text")).expect("base64url");
    let read: Value = serde_json::from_slice(&data).expect("it is JSON");
    assert_eq!(read, json!({"notification": {"event_id": "$a"}}));
}
