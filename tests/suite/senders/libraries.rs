//! The libraries web-push of npm and pywebpush, as they are, against a server that has TLS itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kalends::dev::keypair::KeyPair;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use super::subscriber::{Received, Subscriber};
use crate::harness::{Authority, Server, child, node_modules, python, within};

/// Maximum time to start an interpreter and send a few messages, on a busy machine.
const SENDING_WAIT: Duration = Duration::from_secs(60);

const TTL_S: u64 = 1234;

/// A server that compares bodies with RFC 8291, and the authority of its certificate.
struct World {
    authority: Authority,
    server: Server,
    dir: TempDir,
}

impl World {
    fn start() -> Self {
        let authority = Authority::new();
        let server = authority.server(&["--payload-header-required=true"]);
        Self { authority, server, dir: TempDir::new().expect("a directory can be made") }
    }

    /// With a key of web-push, and an agent that is subscribed for it.
    async fn with_vapid_details() -> (Self, Value, Subscriber) {
        let (world, vapid) = (Self::start(), vapid_details(&KeyPair::generate()));
        let key = vapid["publicKey"].as_str().expect("it is a text");
        let user = world.subscriber(key).await;
        (world, vapid, user)
    }

    async fn subscriber(&self, vapid_key: &str) -> Subscriber {
        Subscriber::new(&self.authority, &self.server, vapid_key).await
    }

    /// Sends pushes with `sendNotification`, one after the other. Returns what it returns or throws.
    async fn web_push(&self, orders: &Value) -> Vec<Value> {
        let mut node = Command::from(child("node"));
        node.arg(script("npm_sender.cjs")).env("NODE_PATH", node_modules());
        node.env("NODE_EXTRA_CA_CERTS", self.authority.path("ca.pem")).arg(self.write(orders));
        answers(node).await
    }

    /// Sends pushes with `webpush`, one after the other.
    async fn pywebpush(&self, orders: &Value) -> Vec<Value> {
        let mut command = self.python();
        command.arg("push").arg(self.write(orders));
        answers(command).await
    }

    /// Makes a VAPID key with py-vapid. Returns its file and its public half.
    async fn pywebpush_key(&self, name: &str) -> (PathBuf, String) {
        let (mut command, file) = (self.python(), self.dir.path().join(name));
        command.arg("key").arg(&file);
        (file, output(command).await.trim().to_owned())
    }

    fn python(&self) -> Command {
        let mut command = Command::from(child(python()));
        // The server is on this machine, whatever proxy is configured.
        command.arg(script("python_sender.py")).env("NO_PROXY", "*");
        command.env("REQUESTS_CA_BUNDLE", self.authority.path("ca.pem"));
        command
    }

    fn write(&self, orders: &Value) -> PathBuf {
        let path = self.dir.path().join("orders.json");
        fs::write(&path, orders.to_string()).expect("a file can be written");
        path
    }
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/senders").join(name)
}

async fn answers(command: Command) -> Vec<Value> {
    serde_json::from_str(&output(command).await).expect("the program prints its answers")
}

async fn output(mut command: Command) -> String {
    command.kill_on_drop(true);
    let output = within(SENDING_WAIT, "messages are sent", command.output()).await;
    let output = output.expect("the program can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("it prints text")
}

/// The `vapidDetails` of web-push.
fn vapid_details(pair: &KeyPair) -> Value {
    let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    json!({
        "subject": "mailto:tests@example.com",
        "publicKey": text(pair.public()),
        "privateKey": text(&pair.private_bytes()),
    })
}

fn received(text: &str, encoding: &str) -> Received {
    Received { text: text.to_owned(), encoding: encoding.to_owned() }
}

/// The error number in the body of an answer.
fn errno(body: &Value) -> Value {
    let body = body.as_str().expect("the body is a text");
    serde_json::from_str::<Value>(body).expect("the body is JSON")["errno"].clone()
}

#[actix_web::test]
async fn web_push_of_npm_delivers_in_both_encodings_signed_and_without_a_payload() {
    let (world, vapid, mut user) = World::with_vapid_details().await;
    let order = |payload: Value, options: Value| {
        let mut options = options;
        options["vapidDetails"] = vapid.clone();
        options["TTL"] = TTL_S.into();
        json!({"subscription": user.subscription(), "payload": payload, "options": options})
    };
    let orders = json!([
        order(json!("größer"), json!({})),
        order(json!("older"), json!({"contentEncoding": "aesgcm"})),
        order(Value::Null, json!({})),
    ]);
    let (answers, got) = tokio::join!(world.web_push(&orders), async {
        [user.take().await, user.take().await, user.take().await]
    });
    let expected = [received("größer", "aes128gcm"), received("older", "aesgcm"), received("", "")];
    assert_eq!(got, expected);
    for answer in answers {
        assert_eq!((&answer["statusCode"], &answer["body"]), (&json!(201), &json!("")), "{answer}");
        assert_eq!(answer["headers"]["ttl"], TTL_S.to_string());
        let location = answer["headers"]["location"].as_str().expect("a 201 has a Location");
        assert!(location.starts_with(&format!("https://{}/m/", world.server.address())));
    }
}

#[actix_web::test]
async fn topic_and_urgency_of_web_push_of_npm_have_their_effect() {
    let (world, vapid, mut user) = World::with_vapid_details().await;
    user.wants("normal").await;
    let order = |payload: &str, urgency: &str, topic: Option<&str>| {
        let options = json!({"vapidDetails": vapid, "urgency": urgency, "topic": topic});
        json!({"subscription": user.subscription(), "payload": payload, "options": options})
    };
    let orders = json!([
        order("replaced", "low", Some("news")),
        order("of the topic", "low", Some("news")),
        order("urgent", "high", None),
    ]);
    let (answers, first) = tokio::join!(world.web_push(&orders), user.take());
    assert!(answers.iter().all(|answer| answer["statusCode"] == 201), "{answers:?}");
    assert_eq!(first.text, "urgent");
    user.wants("low").await;
    assert_eq!(user.take().await.text, "of the topic");
    user.has_nothing_more().await;
}

#[actix_web::test]
async fn a_refusal_reaches_web_push_of_npm_as_its_error_with_status_and_body() {
    let (world, vapid, mut user) = World::with_vapid_details().await;
    let order = |vapid: &Value, user: &Subscriber| {
        let options = json!({"vapidDetails": vapid});
        json!({"subscription": user.subscription(), "payload": "x", "options": options})
    };
    let other = vapid_details(&KeyPair::generate());
    let mut answers = world.web_push(&json!([order(&other, &user)])).await;
    user.unregister().await;
    answers.extend(world.web_push(&json!([order(&vapid, &user)])).await);
    for (answer, (status, number)) in answers.iter().zip([(403, 109), (410, 106)]) {
        assert_eq!(
            (&answer["name"], &answer["statusCode"]),
            (&json!("WebPushError"), &json!(status))
        );
        assert_eq!(errno(&answer["body"]), number, "{answer}");
    }
    assert_eq!(answers[1]["headers"]["cache-control"], "max-age=86400");
}

#[actix_web::test]
async fn web_push_of_npm_gets_the_link_of_a_receipt() {
    let (world, vapid, mut user) = World::with_vapid_details().await;
    let options = json!({"vapidDetails": vapid, "headers": {"Prefer": "respond-async"}});
    let order = json!({"subscription": user.subscription(), "payload": "x", "options": options});
    let orders = json!([order]);
    let (answers, got) = tokio::join!(world.web_push(&orders), user.take());
    assert_eq!((answers[0]["statusCode"].as_u64(), &*got.text), (Some(202), "x"));
    assert_delivered(&world, &answers[0]["headers"]["link"]).await;
}

/// The receipts at this `Link` have the message as delivered.
async fn assert_delivered(world: &World, link: &Value) {
    let link = link.as_str().expect("a 202 has a Link");
    assert!(link.ends_with("; rel=\"urn:ietf:params:push:receipt\""), "{link}");
    let url = link.trim_start_matches('<').split('>').next().expect("there is a URL");
    let page = world.authority.curl(&[&format!("{url}?wait=10")]).await;
    assert!(page.contains("\"status\":\"delivered\",\"code\":100"), "{page}");
}

#[actix_web::test]
async fn pywebpush_delivers_in_both_encodings_and_both_vapid_schemes() {
    let world = World::start();
    let (key, public) = world.pywebpush_key("vapid.pem").await;
    let mut user = world.subscriber(&public).await;
    let forms = [
        ("aes128gcm", "vapid"),
        ("aes128gcm", "WebPush"),
        ("aesgcm", "vapid"),
        ("aesgcm", "WebPush"),
    ];
    let order = |(encoding, scheme): (&str, &str)| {
        json!({
            "subscription": user.subscription(), "key": key, "text": scheme, "encoding": encoding,
            "scheme": scheme,
        })
    };
    let orders = Value::from(forms.map(order).to_vec());
    let (answers, got) = tokio::join!(world.pywebpush(&orders), async {
        let mut got = Vec::new();
        while got.len() < forms.len() {
            got.push(user.take().await);
        }
        got
    });
    assert!(answers.iter().all(|answer| answer["status"] == 201), "{answers:?}");
    assert_eq!(got, forms.map(|(encoding, scheme)| received(scheme, encoding)));
}

#[actix_web::test]
async fn pywebpush_gets_the_reason_of_a_refusal_and_the_link_of_a_receipt() {
    let world = World::start();
    let (key, public) = world.pywebpush_key("vapid.pem").await;
    let (other, _) = world.pywebpush_key("other.pem").await;
    let mut user = world.subscriber(&public).await;
    let order = |key: &Path, scheme: &str, headers: &Value, user: &Subscriber| {
        json!([{
            "subscription": user.subscription(), "key": key, "text": "x", "encoding": "aes128gcm",
            "scheme": scheme, "headers": headers,
        }])
    };
    let orders = order(&key, "vapid", &json!({"Prefer": "respond-async"}), &user);
    let (answers, _got) = tokio::join!(world.pywebpush(&orders), user.take());
    assert_eq!(answers[0]["status"], 202, "{answers:?}");
    assert_delivered(&world, &answers[0]["link"]).await;
    for scheme in ["vapid", "WebPush"] {
        let answers = world.pywebpush(&order(&other, scheme, &Value::Null, &user)).await;
        assert_eq!((&answers[0]["status"], errno(&answers[0]["body"])), (&json!(403), json!(109)));
    }
    user.unregister().await;
    let answers = world.pywebpush(&order(&key, "vapid", &Value::Null, &user)).await;
    assert_eq!((&answers[0]["status"], errno(&answers[0]["body"])), (&json!(410), json!(106)));
}
