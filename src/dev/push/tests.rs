//! Pushes to a server that each test scripts.

use super::*;
use crate::dev::base64url::from_base64url;
use crate::dev::encrypt::decrypt;
use crate::dev::files::write_private;
use crate::dev::fixture::{TLS_HANDSHAKE, TestRequest, TestServer};
use crate::dev::identity::Identity;
use actix_web::rt::spawn;
use actix_web::rt::task::spawn_blocking;
use clap::Parser;
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: PushArgs,
}

fn args(words: &[&str]) -> PushArgs {
    Line::parse_from(["push"].iter().chain(words)).args
}

fn agent(address: SocketAddr) -> Identity {
    let server = Url::parse(&format!("ws://{address}/")).unwrap();
    let mut agent = Identity::generate(&server, None);
    agent.endpoint = Some(Url::parse(&format!("http://{address}/wpush/token")).unwrap());
    agent
}

fn response(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n{body}")
}

fn created() -> String {
    response("201 Created", "location: http://a/m/1\r\nttl: 60\r\n", "")
}

/// Sends to a server that answers as given; gives what it was asked.
async fn send(
    agent: &Identity,
    fake: TestServer,
    response: String,
    words: &[&str],
) -> (Result<Accepted, ToolError>, TestRequest) {
    let server = spawn(async move { fake.answer(&response).await });
    let subscription = agent.subscription().unwrap();
    let KeyTexts { p256dh, auth } = subscription.keys.clone().into();
    let (p256dh, auth) = (format!("--p256dh={p256dh}"), format!("--auth={auth}"));
    let keys = [subscription.endpoint.as_str(), &p256dh, &auth];
    let push = Push::prepare(&args(&[&keys, words].concat())).unwrap();
    let answer = sent(push).await;
    (answer, server.await.unwrap())
}

async fn sent(push: Push) -> Result<Accepted, ToolError> {
    spawn_blocking(move || push.send()).await.unwrap()
}

/// The error of an empty push to this endpoint.
async fn error_at(endpoint: &str) -> String {
    let push = Push::prepare(&args(&[endpoint, "-m", ""])).unwrap();
    sent(push).await.unwrap_err().to_string()
}

fn decrypted(agent: &Identity, request: &TestRequest) -> Vec<u8> {
    let header = |name| request.header(name).unwrap().into();
    let encoding = match request.header("content-encoding").unwrap() {
        "aes128gcm" => Encoding::Aes128Gcm,
        "aesgcm" => {
            Encoding::AesGcm { encryption: header("encryption"), crypto_key: header("crypto-key") }
        }
        other => panic!("{other}"),
    };
    let payload = Payload { data: request.body.clone().into(), encoding };
    decrypt(&agent.pair, &agent.auth, &payload).unwrap()
}

#[actix_web::test]
async fn a_message_is_encrypted_signed_and_posted_and_the_answer_printed() {
    let (fake, address) = TestServer::start().await;
    let agent = agent(address);
    let words = ["-m", "hello", "--ttl", "60", "--topic", "t", "--urgency", "high"];
    let (answer, request) = send(&agent, fake, created(), &words).await;

    let told = "201 Created\nLocation: http://a/m/1\nTTL: 60";
    let answer = answer.unwrap();
    assert_eq!(answer.text(), told);
    assert!(answer.state().contains("acked it, or it is stored"), "{}", answer.state());
    assert_eq!(to_json(&answer), "{\"status\":201,\"location\":\"http://a/m/1\",\"ttl\":60}\n");
    assert!(request.head.starts_with("POST /wpush/token HTTP/1.1\r\n"), "{}", request.head);
    let header = |name| request.header(name);
    assert_eq!(
        (header("ttl"), header("topic"), header("urgency")),
        (Some("60"), Some("t"), Some("high"))
    );
    assert_eq!(decrypted(&agent, &request), b"hello");

    let token = header("authorization").unwrap().strip_prefix("vapid t=").unwrap();
    let claims = from_base64url(token.split('.').nth(1).unwrap()).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    assert_eq!(claims["aud"], format!("http://{address}"));
}

#[actix_web::test]
async fn a_server_that_does_not_wait_is_asked_a_few_times_a_second() {
    let (fake, address) = TestServer::start().await;
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let server = spawn(async move {
        let page = response("200 OK", "", r#"{"receipts":[],"cursor":0,"head":0}"#);
        loop {
            fake.answer(&page).await;
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let receipts = format!("http://{address}/receipts/t").parse().unwrap();
    let waited = spawn_blocking(move || {
        receipt::wait(&receipts, "http://a/m/1", Duration::from_secs(1)).unwrap()
    });
    assert_eq!(to_json(&waited.await.unwrap()), "{\"status\":\"stored\"}\n");
    assert!((2..=7).contains(&asked.load(Ordering::Relaxed)), "{asked:?}");
    server.abort();
}

#[actix_web::test]
async fn a_receipt_is_asked_for_and_waited_for() {
    let (fake, address) = TestServer::start().await;
    let headers = format!(
        "location: http://a/m/1\r\nttl: 60\r\n\
         link: <http://{address}/receipts/t>; rel=\"urn:ietf:params:push:receipt\"\r\n"
    );
    let page = |receipts: &str, cursor: u32| {
        response(
            "200 OK",
            "",
            &format!(r#"{{"receipts":[{receipts}],"cursor":{cursor},"head":9}}"#),
        )
    };
    let delivered = r#"{"id":4,"message":"http://a/m/1","status":"delivered","code":100}"#;
    let other = r#"{"id":3,"message":"http://a/m/0","status":"expired"}"#;
    let answers = [response("202 Accepted", &headers, ""), page(other, 3), page(delivered, 4)];
    let server = spawn(async move {
        let mut asked = Vec::new();
        for answer in answers {
            asked.push(fake.answer(&answer).await);
        }
        asked
    });
    let endpoint = format!("http://{address}/wpush/token");
    let args = args(&[&endpoint, "-m", "", "--wait", "1m", "--json"]);
    let answer = sent(Push::prepare(&args).unwrap()).await.unwrap();
    let waited = spawn_blocking(move || answer.waited(Duration::from_secs(60)));
    let receipt = waited.await.unwrap().unwrap();
    assert_eq!(to_json(&receipt), "{\"status\":\"delivered\",\"code\":100}\n");
    let [push, first, second] = server.await.unwrap().try_into().unwrap();
    assert_eq!(push.header("prefer"), Some("respond-async"));
    assert!(first.head.starts_with("GET /receipts/t?after=0&wait=60 "), "{}", first.head);
    assert!(second.head.starts_with("GET /receipts/t?after=3&wait="), "{}", second.head);
    assert_eq!(first.header("authorization"), None);
}

#[test]
fn a_ttl_is_seconds_or_has_a_unit() {
    for (text, seconds) in [("0", 0), ("90", 90), ("45s", 45), ("1h", 3600), ("7d", 604_800)] {
        assert_eq!(time(text), Ok(seconds), "{text}");
    }
    for wrong in ["", "h", "-1", "1.5h", "1w", "4294967296", "49711d"] {
        assert!(time(wrong).unwrap_err().contains("such as 30m"), "{wrong}");
    }
}

#[actix_web::test]
async fn the_old_encoding_puts_its_keys_into_headers() {
    let (fake, address) = TestServer::start().await;
    let agent = agent(address);
    let words = ["-m", "hello", "--encoding", "aesgcm", "--no-vapid"];
    let (answer, request) = send(&agent, fake, created(), &words).await;
    answer.unwrap();
    assert_eq!(decrypted(&agent, &request), b"hello");
    assert_eq!(request.header("authorization"), None);
}

#[actix_web::test]
async fn an_empty_message_is_a_push_without_a_body() {
    let (fake, address) = TestServer::start().await;
    let (answer, request) = send(&agent(address), fake, created(), &["-m", ""]).await;
    answer.unwrap();
    assert!(request.body.is_empty());
    assert_eq!(request.header("content-encoding"), None);
    assert_eq!(request.header("content-length"), Some("0"));
}

#[actix_web::test]
async fn a_refusal_is_reported_with_the_servers_reason_and_what_to_do() {
    let reason = r#"{"code":410,"errno":106,"error":"Gone","message":"no such \u001b[1m"}"#;
    for (response, expected) in [
        (
            response("410 Gone", "", reason),
            "the server answered 410 Gone: no such \\u{1b}[1m (errno 106)\n\
             the subscription is over: its user agent has to subscribe again",
        ),
        (
            response("503 Service Unavailable", "retry-after: 5\r\n", r#"{"errno":201}"#),
            "the server answered 503 Service Unavailable, Retry-After: 5\n\
             the server is busy or stopping: send again later",
        ),
        (
            response("301 Moved Permanently", "location: /a\r\n", ""),
            "the server answered 301 Moved Permanently\n\
             push services do not redirect: is the endpoint complete?",
        ),
    ] {
        let (fake, address) = TestServer::start().await;
        let (answer, _) = send(&agent(address), fake, response, &["-m", "hello"]).await;
        assert_eq!(answer.unwrap_err().to_string(), expected);
    }
}

#[test]
fn a_message_in_place_of_the_endpoint_is_refused_with_the_flag() {
    for text in ["hello", "localhost:8080/wpush/x", "ftp://a"] {
        assert!(endpoint(text).unwrap_err().contains("a message follows -m"), "{text}");
        let error = Line::try_parse_from(["push", "--subscription", "s", text]).err().unwrap();
        assert!(error.to_string().contains("a message follows -m"), "{error}");
    }
    assert_eq!(endpoint("http://a/b").unwrap().as_str(), "http://a/b");
}

#[test]
fn the_contact_is_a_mail_address_or_a_page() {
    for right in ["mailto:me@example.net", "https://example.net/contact"] {
        assert_eq!(contact(right), Ok(right.to_owned()));
    }
    for wrong in ["me@example.net", "mailto:", "http://example.net", "https://", "me"] {
        assert!(contact(wrong).unwrap_err().starts_with("expected a mailto: or https: URL"));
    }
}

#[actix_web::test]
async fn an_https_endpoint_on_a_plain_port_is_reported() {
    let (fake, address) = TestServer::start().await;
    spawn(async move {
        let mut stream = fake.connection().await;
        stream.read_u8().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        // Ended by the sender: to close first, with unread bytes, would reset the connection.
        while stream.read_u8().await.is_ok() {}
    });
    let error = error_at(&format!("https://{address}/wpush/t")).await;
    assert!(error.contains("that port does not speak TLS: try http:"), "{error}");
}

#[actix_web::test]
async fn a_missing_server_is_reported() {
    let (fake, address) = TestServer::start().await;
    drop(fake);
    let error = error_at(&format!("http://{address}/wpush/token")).await;
    assert!(error.starts_with(&format!("cannot reach http://{address}: ")), "{error}");
}

#[actix_web::test]
async fn an_https_endpoint_uses_tls() {
    let (fake, address) = TestServer::start().await;
    let server = spawn(async move { fake.first_byte().await });
    let error = error_at(&format!("https://{address}/wpush/token")).await;
    assert!(error.starts_with(&format!("cannot reach https://{address}: ")), "{error}");
    assert_eq!(server.await.unwrap(), TLS_HANDSHAKE);
}

#[test]
fn a_subscription_file_has_the_endpoint_and_the_keys() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sub.json");
    let subscription = agent("127.0.0.1:1".parse().unwrap()).subscription().unwrap();
    subscription.save(&path).unwrap();
    let file = path.to_str().unwrap();
    let push = Push::prepare(&args(&["--subscription", file, "-m", "hello"])).unwrap();
    assert_eq!(push.endpoint, subscription.endpoint);
    assert!(push.headers.contains(&("Content-Encoding", "aes128gcm".into())));
}

#[test]
fn a_message_from_a_file_is_sent_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("message");
    write_private(&path, "a\nb\n").unwrap();
    let args = args(&["http://a", "--file", path.to_str().unwrap()]);
    assert_eq!(message(&args).unwrap(), b"a\nb\n");
}

#[test]
fn a_vapid_key_file_is_made_once_and_signs_every_push() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vapid.pem");
    let args = args(&["http://a", "-m", "", "--vapid-key", path.to_str().unwrap()]);
    let key = || {
        let push = Push::prepare(&args).unwrap();
        let (_, value) = push.headers.last().unwrap().clone();
        value.rsplit_once("k=").unwrap().1.to_owned()
    };
    assert_eq!(key(), key());
    let kept = VapidKey::load_or_make(&path).unwrap();
    assert_eq!(key(), to_base64url(kept.pair.public()));
}

#[test]
fn arguments_that_cannot_be_sent_are_refused_before_any_request() {
    let keys = agent("127.0.0.1:1".parse().unwrap()).subscription().unwrap().keys;
    let KeyTexts { p256dh, auth } = keys.into();
    let (p256dh, auth) = (format!("--p256dh={p256dh}"), format!("--auth={auth}"));
    let long = "x".repeat(3967);
    for (words, expected) in [
        (vec!["http://a", "-m", "hello"], "a message is encrypted for its subscription"),
        (vec!["http://a", "-m", "x", "--p256dh=x", "--auth=x"], "p256dh is not a P-256"),
        (
            vec!["http://a", "-m", &long, "--encoding", "aesgcm", &p256dh, &auth],
            "cannot encrypt the message: it has 3967 bytes; in aesgcm a push",
        ),
        (vec!["http://a", "--file", "/nowhere"], "cannot read /nowhere: "),
        (vec!["--subscription", "/nowhere", "-m", "x"], "cannot read /nowhere: "),
    ] {
        let Err(error) = Push::prepare(&args(&words)) else { panic!("{words:?}") };
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}
