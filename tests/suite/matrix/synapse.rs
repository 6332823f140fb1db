//! Synapse, a Matrix homeserver, as its own process. It sends what its users' apps are notified of to the gateway.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::{PATH, notification};
use crate::harness::{Agent, Server, child, python, until, within};

/// It creates its tables first.
const START_WAIT: Duration = Duration::from_secs(120);

/// Synapse waits for 1 s before it repeats a notification, then 2 s, then 4 s.
const REPEAT_WAIT: Duration = Duration::from_secs(60);

/// A homeserver on a socket in its own directory. It is killed when this is dropped.
struct Synapse {
    process: Child,
    dir: TempDir,
}

/// A user, by its access token.
struct User<'a> {
    synapse: &'a Synapse,
    token: String,
}

impl Synapse {
    async fn start() -> Self {
        let dir = TempDir::new().expect("a temporary directory can be made");
        let at = |name: &str| dir.path().join(name);
        let config = json!({
            "server_name": "localhost",
            "listeners": [{"path": at("socket"), "type": "http", "resources": [{"names": ["client"]}]}],
            "database": {"name": "sqlite3", "args": {"database": at("homeserver.db")}},
            "media_store_path": at("media"),
            "pid_file": at("homeserver.pid"),
            "signing_key_path": at("signing.key"),
            "macaroon_secret_key": "macaroons",
            "form_secret": "forms",
            "enable_registration": true,
            "enable_registration_without_verification": true,
            "report_stats": false,
            "trusted_key_servers": [],
            // The gateway of the tests is on loopback.
            "ip_range_whitelist": ["127.0.0.1/32"],
        });
        // JSON is YAML.
        let write = |name, text: &str| fs::write(at(name), text).expect("a file can be written");
        write("homeserver.yaml", &config.to_string());
        write("signing.key", &format!("ed25519 a_key {}\n", "A".repeat(43)));
        let log = File::create(at("log")).expect("a file can be made");
        let mut command = child(python());
        command.args(["-m", "synapse.app.homeserver", "-c"]).arg(at("homeserver.yaml"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).env("NO_PROXY", "*");
        let process = command.spawn().expect("Synapse can be started");
        let mut synapse = Self { process, dir };
        until(START_WAIT, "Synapse starts", async || {
            let ended = synapse.process.try_wait().expect("a process can be waited for");
            assert!(ended.is_none(), "Synapse ended: {}", synapse.log());
            UnixStream::connect(synapse.socket()).await.is_ok()
        })
        .await;
        synapse
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).expect("Synapse has a log")
    }

    async fn register(&self, name: &str) -> User<'_> {
        let user = json!({"username": name, "password": name, "auth": {"type": "m.login.dummy"}});
        let answer = self.ask("POST", "register", None, &user).await;
        User { synapse: self, token: text(&answer["access_token"]) }
    }

    /// Sends a request of the client-server API, which must be answered 200.
    async fn ask(&self, method: &str, path: &str, token: Option<&str>, body: &Value) -> Value {
        let body = body.to_string();
        let token = token.map(|token| format!("authorization: Bearer {token}\r\n"));
        // In HTTP/1.0 an answer ends with the connection. Without a forwarded address Synapse fails on its socket.
        let request = format!(
            "{method} /_matrix/client/v3/{path} HTTP/1.0\r\nhost: localhost\r\n\
             x-forwarded-for: 127.0.0.1\r\nx-forwarded-proto: https\r\n{}content-length: {}\r\n\r\n{body}",
            token.unwrap_or_default(),
            body.len()
        );
        let exchange = async {
            let mut stream = UnixStream::connect(self.socket()).await?;
            stream.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.map(|_| answer)
        };
        let answer = within(START_WAIT, "Synapse answers", exchange).await;
        let answer = answer.expect("Synapse takes connections");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
        assert!(head.contains(" 200 "), "{path}: {answer}\n{}", self.log());
        serde_json::from_str(body).expect("Synapse answers with JSON")
    }
}

impl Drop for Synapse {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl User<'_> {
    async fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        self.synapse.ask(method, path, Some(&self.token), body).await
    }

    /// Sends a message, and returns its event.
    async fn say(&self, room: &str, words: &str) -> String {
        let path = format!("rooms/{room}/send/m.room.message/{words}");
        let message = json!({"msgtype": "m.text", "body": words});
        text(&self.ask("PUT", &path, &message).await["event_id"])
    }

    /// Has an app notified, as the app itself asks for.
    async fn set_pusher(&self, server: &Server, pushkey: &str) {
        let pusher = json!({
            "kind": "http", "app_id": "org.example.app", "pushkey": pushkey, "lang": "en",
            "app_display_name": "app", "device_display_name": "device",
            "data": {"url": format!("{}{PATH}", server.origin())},
        });
        self.ask("POST", "pushers/set", &pusher).await;
    }

    async fn pushers(&self) -> Value {
        self.ask("GET", "pushers", &json!({})).await["pushers"].clone()
    }
}

fn text(json: &Value) -> String {
    json.as_str().unwrap_or_else(|| panic!("no text: {json}")).to_owned()
}

fn encoded(id: &str) -> String {
    utf8_percent_encode(id, NON_ALPHANUMERIC).to_string()
}

#[actix_web::test]
async fn synapse_notifies_an_app_repeats_what_is_refused_and_removes_a_rejected_pusher() {
    let (server, mut agent, channel) = Server::with_subscribed(&["--user-messages-max=1"]).await;
    let synapse = Synapse::start().await;
    let (alice, bob) = (synapse.register("alice").await, synapse.register("bob").await);
    let room = json!({"preset": "trusted_private_chat", "invite": ["@bob:localhost"]});
    let room = encoded(&text(&alice.ask("POST", "createRoom", &room).await["room_id"]));
    bob.ask("POST", &format!("join/{room}"), &json!({})).await;
    bob.set_pusher(&server, &channel.endpoint).await;

    let event = alice.say(&room, "online").await;
    let got = notification(&agent.take(1).await[0]);
    assert_eq!((&got["event_id"], &got["content"]["body"]), (&json!(event), &json!("online")));
    assert_eq!(got["devices"], Value::Null);
    let receipt = format!("rooms/{room}/receipt/m.read/{}", encoded(&event));
    bob.ask("POST", &receipt, &json!({})).await;
    assert_eq!(notification(&agent.take(1).await[0])["counts"], json!({"unread": 0}));

    // The first message fills what may wait for the agent, and the second is refused with 429.
    let uaid = agent.leave().await;
    alice.say(&room, "stored").await;
    alice.say(&room, "refused").await;
    let is_refused = async || synapse.log().contains("Push failed: delaying");
    until(REPEAT_WAIT, "the gateway refuses a notification", is_refused).await;
    let mut agent = Agent::reconnect(&server, &uaid).await;
    let stored = notification(&agent.take(1).await[0]);
    // The agent is connected before Synapse repeats, at most 4 s later.
    let repeated = notification(&agent.take(1).await[0]);
    let bodies = [&stored, &repeated].map(|got| got["content"]["body"].clone());
    assert_eq!(bodies, [json!("stored"), json!("refused")]);

    agent.unregister(&channel).await;
    assert_eq!(bob.pushers().await.as_array().map(Vec::len), Some(1));
    alice.say(&room, "unsubscribed").await;
    let is_removed = async || bob.pushers().await == json!([]);
    until(REPEAT_WAIT, "Synapse removes the pusher", is_removed).await;
}
