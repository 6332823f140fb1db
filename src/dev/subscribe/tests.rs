//! The listener against a server that each test scripts.

use super::*;
use crate::dev::base64url::to_base64url;
use crate::dev::encrypt::{Coding, encrypt};
use crate::dev::fixture::{TLS_HANDSHAKE, TestServer, TestSocket};
use crate::dev::subscription::Subscription;
use actix_web::rt::spawn;
use clap::Parser;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: SubscribeArgs,
}

fn args(address: SocketAddr, more: &[&str]) -> SubscribeArgs {
    let url = format!("http://{address}/");
    let words = ["listen", &url, "--json"].into_iter().chain(more.iter().copied());
    Line::parse_from(words).args
}

fn timing() -> Timing {
    let retry = Span(1);
    Timing { retry, retry_max: retry, ..Timing::default() }
}

/// Runs a listener to its end; gives what it printed, an object a line.
async fn listen(args: &SubscribeArgs, timing: Timing) -> (Result<(), ToolError>, Vec<Value>) {
    let mut listener = Listener::new(args, Vec::new(), timing).unwrap();
    let result = listener.run().await;
    let printed = String::from_utf8(listener.output.to).unwrap();
    (result, printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

fn names(printed: &[Value]) -> Vec<&str> {
    printed.iter().map(|event| event["event"].as_str().unwrap()).collect()
}

/// Runs a listener with these words against a server that plays the script.
async fn meet<F: Future<Output = ()> + 'static>(
    words: &[&str],
    timing: Timing,
    script: impl FnOnce(TestServer) -> F,
) -> (Result<(), ToolError>, Vec<Value>) {
    let (fake, address) = TestServer::start().await;
    let server = spawn(script(fake));
    let heard = listen(&args(address, words), timing).await;
    server.await.unwrap();
    heard
}

/// Accepts a connection, answers hello and, for an agent that has no subscription, register. Gives the agent's hello
/// and its channel.
async fn accept(fake: &TestServer) -> (TestSocket, Value, String) {
    let socket = fake.websocket().await;
    welcome(socket).await
}

async fn welcome(mut socket: TestSocket) -> (TestSocket, Value, String) {
    let hello = socket.hear().await;
    socket.say(json!({"messageType": "hello", "status": 200, "uaid": "abc"})).await;
    if hello["uaid"] == "abc" {
        return (socket, hello, String::new());
    }
    let register = socket.hear().await;
    let channel = register["channelID"].as_str().unwrap().to_owned();
    socket
        .say(json!({"messageType": "register", "status": 200, "channelID": channel,
                    "pushEndpoint": "http://push.example/wpush/t"}))
        .await;
    (socket, hello, channel)
}

fn bare(channel: &str) -> Value {
    json!({"messageType": "notification", "channelID": channel, "version": "v"})
}

async fn notify(socket: &mut TestSocket, to: &Path, channel: &str, version: &str, text: &str) {
    let keys = Subscription::load(to).unwrap().keys;
    let payload = encrypt(&keys, text.as_bytes(), Coding::Aes128gcm).unwrap();
    socket
        .say(json!({"messageType": "notification", "channelID": channel, "version": version,
                    "data": to_base64url(&payload.data), "headers": {"encoding": "aes128gcm"}}))
        .await;
}

fn acked(ack: &Value) -> (&str, u64) {
    let update = &ack["updates"][0];
    (update["version"].as_str().unwrap(), update["code"].as_u64().unwrap())
}

fn part(text: impl Into<Vec<u8>>, kind: Data, is_last: bool) -> Message {
    Message::Frame(Frame::message(text.into(), OpCode::Data(kind), is_last))
}

async fn close(socket: &mut TestSocket, code: u16, reason: &'static str) {
    let frame = CloseFrame { code: code.into(), reason: reason.into() };
    socket.0.send(Message::Close(Some(frame))).await.unwrap();
}

/// Reads until the agent closes the connection.
async fn goodbye(mut socket: TestSocket) {
    while let Some(Ok(message)) = socket.0.next().await {
        if message.is_close() {
            return;
        }
    }
}

struct Files {
    _dir: TempDir,
    state: String,
    subscription: String,
}

fn files() -> Files {
    let dir = tempfile::tempdir().unwrap();
    let path = |name| dir.path().join(name).to_str().unwrap().to_owned();
    Files { state: path("state.json"), subscription: path("sub.json"), _dir: dir }
}

#[actix_web::test]
async fn it_subscribes_prints_and_acks_messages_and_ends_after_the_count() {
    let files = files();
    let to = files.subscription.clone();
    let script = |fake: TestServer| async move {
        let (mut socket, hello, channel) = accept(&fake).await;
        assert_eq!(hello["use_webpush"], true);
        // The file is there once the agent answers the first ping after it has subscribed.
        socket.0.send(Message::Ping("x".into())).await.unwrap();
        assert!(matches!(socket.0.next().await, Some(Ok(Message::Pong(_)))));
        for (version, text) in [("v1", "hello"), ("v2", "again")] {
            notify(&mut socket, Path::new(&to), &channel, version, text).await;
            assert_eq!(acked(&socket.hear().await), (version, 100));
        }
        goodbye(socket).await;
    };
    let words = ["--subscription", &files.subscription, "--count", "2"];
    let (result, printed) = meet(&words, timing(), script).await;
    result.unwrap();
    assert_eq!(names(&printed), ["connected", "subscribed", "message", "message"]);
    assert_eq!(printed[1]["subscription"]["endpoint"], "http://push.example/wpush/t");
    assert_eq!((&printed[2]["text"], &printed[3]["text"]), (&json!("hello"), &json!("again")));
}

#[actix_web::test]
async fn a_message_may_come_in_parts_with_a_ping_between_them() {
    let (result, printed) = meet(&["--count", "1"], timing(), |fake| async move {
        let (mut socket, _, channel) = accept(&fake).await;
        let text = bare(&channel).to_string();
        let (start, end) = text.split_at(20);
        socket.0.feed(part(start, Data::Text, false)).await.unwrap();
        socket.0.feed(Message::Ping("x".into())).await.unwrap();
        socket.0.send(part(end, Data::Continue, true)).await.unwrap();
        assert!(matches!(socket.0.next().await, Some(Ok(Message::Pong(_)))));
        assert_eq!(acked(&socket.hear().await), ("v", 100));
        goodbye(socket).await;
    })
    .await;
    result.unwrap();
    assert_eq!(names(&printed), ["connected", "subscribed", "message"]);
}

#[actix_web::test]
async fn a_server_without_a_subprotocol_is_accepted() {
    let (result, printed) = meet(&["--count", "1"], timing(), |fake| async move {
        drop(fake.websocket_without_protocol().await);
        let (mut socket, _, channel) = welcome(fake.websocket_without_protocol().await).await;
        socket.say(bare(&channel)).await;
        goodbye(socket).await;
    })
    .await;
    result.unwrap();
    assert_eq!(names(&printed), ["connected", "subscribed", "message"]);
}

#[actix_web::test]
async fn a_later_run_with_the_same_state_gets_the_waiting_messages() {
    let (fake, address) = TestServer::start().await;
    let files = files();
    let to = files.subscription.clone();
    let server = spawn(async move {
        let (mut socket, _, channel) = accept(&fake).await;
        socket.say(bare(&channel)).await;
        socket.hear().await;
        goodbye(socket).await;

        let (mut socket, hello, _) = accept(&fake).await;
        notify(&mut socket, Path::new(&to), &channel, "v2", "waited").await;
        assert_eq!(acked(&socket.hear().await), ("v2", 100));
        goodbye(socket).await;
        hello
    });

    let args = args(
        address,
        &["--state", &files.state, "--subscription", &files.subscription, "--count", "1"],
    );
    listen(&args, timing()).await.0.unwrap();
    let (result, printed) = listen(&args, timing()).await;
    result.unwrap();
    assert_eq!(server.await.unwrap()["uaid"], "abc");
    assert_eq!(names(&printed), ["connected", "subscribed", "message"]);
    assert_eq!(printed[2]["text"], "waited");
}

#[actix_web::test]
async fn it_reconnects_when_the_connection_is_lost() {
    let (result, printed) = meet(&["--count", "1"], timing(), |fake| async move {
        let (socket, _, channel) = accept(&fake).await;
        drop(socket);
        let (mut socket, ..) = accept(&fake).await;
        close(&mut socket, 1001, "restart").await;
        let (mut socket, ..) = accept(&fake).await;
        socket.say(bare(&channel)).await;
        goodbye(socket).await;
    })
    .await;
    result.unwrap();
    let subscribed = ["connected", "subscribed"];
    let expected =
        [&subscribed[..], &["disconnected"], &subscribed, &["disconnected"], &subscribed];
    assert_eq!(names(&printed), [expected.concat(), vec!["message"]].concat());
    assert_eq!(printed[5]["reason"], "the server closed the connection (1001: restart)");
}

#[actix_web::test]
async fn it_subscribes_to_broadcasts_and_prints_their_versions() {
    let words = ["--broadcast", "news", "--broadcast", "weather"];
    let (result, printed) = meet(&words, timing(), |fake| async move {
        let (mut socket, hello, _) = accept(&fake).await;
        assert_eq!(hello["broadcasts"], json!({"news": "", "weather": ""}));
        let broadcasts = json!({"errors": {"weather": "Broadcast not found"}, "news": "v2"});
        socket.say(json!({"messageType": "broadcast", "broadcasts": broadcasts})).await;
        close(&mut socket, 4774, "").await;
    })
    .await;
    assert!(result.is_err(), "close code 4774 ends it");
    let expected = [
        json!({"event": "broadcast_refused", "id": "weather", "reason": "Broadcast not found"}),
        json!({"event": "broadcast", "id": "news", "version": "v2"}),
    ];
    assert_eq!(printed[2..], expected);
}

#[actix_web::test]
async fn it_pings_a_silent_server_and_leaves_one_that_does_not_answer() {
    let short = Duration::from_millis(200);
    let timing = Timing { idle: short, pong: short, ..timing() };
    let (result, printed) = meet(&["--count", "1"], timing, |fake| async move {
        let (mut silent, _, channel) = accept(&fake).await;
        assert_eq!(silent.hear().await, json!({}));
        let (mut next, ..) = accept(&fake).await;
        next.say(bare(&channel)).await;
        goodbye(next).await;
    })
    .await;
    result.unwrap();
    assert_eq!(printed[2]["reason"], "the server does not answer");
}

#[actix_web::test]
async fn close_codes_4774_and_4409_end_it_the_second_with_the_name_of_the_shared_file() {
    let files = files();
    let shared = format!("another `kalends subscribe` uses {}", files.state);
    for (code, state, expected) in [
        (4774, [].as_slice(), "the server asked this agent not to reconnect (close code 4774)"),
        (4409, &["--state", &files.state], &shared),
        (4409, &[], "the same agent connected again, or was dropped (close code 4409)"),
    ] {
        let (result, printed) = meet(state, timing(), |fake| async move {
            let (mut socket, ..) = accept(&fake).await;
            close(&mut socket, code, "").await;
            goodbye(socket).await;
        })
        .await;
        let error = result.unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
        assert_eq!(names(&printed), ["connected", "subscribed"]);
    }
}

#[actix_web::test]
async fn a_server_that_refuses_or_breaks_the_protocol_ends_it() {
    let hello = |rest: &str| Message::text(format!(r#"{{"messageType": "hello", {rest}}}"#));
    for (answer, expected) in [
        (hello(r#""status": 401, "reason": "no""#), "status 401: no"),
        (hello(r#""status": 200"#), "no usable uaid"),
        (hello(r#""status": 503"#), "cannot reach ws://"),
        (Message::binary("x"), "the server sent something that is not a text"),
        (part([0xff], Data::Text, true), "the server sent a text that is not UTF-8"),
    ] {
        let (result, _) = meet(&[], timing(), |fake| async move {
            let mut socket = fake.websocket().await;
            socket.hear().await;
            socket.0.send(answer).await.unwrap();
            goodbye(socket).await;
        })
        .await;
        let error = result.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[actix_web::test]
async fn the_waits_grow_while_a_server_that_answers_hello_refuses_the_register() {
    let timing = Timing { retry: Span(8), retry_max: Span(1000), ..timing() };
    let (result, printed) = meet(&["--count", "1"], timing, |fake| async move {
        for status in [503, 503, 503, 200] {
            let mut socket = fake.websocket().await;
            socket.hear().await;
            socket.say(json!({"messageType": "hello", "status": 200, "uaid": "abc"})).await;
            let channel = socket.hear().await["channelID"].clone();
            let endpoint = if status == 200 { "http://push.example/wpush/t" } else { "" };
            socket
                .say(json!({"messageType": "register", "status": status, "channelID": channel,
                            "pushEndpoint": endpoint}))
                .await;
            if status == 200 {
                socket.say(bare(channel.as_str().unwrap())).await;
            }
            goodbye(socket).await;
        }
    })
    .await;
    result.unwrap();
    let lost = printed.iter().filter(|event| event["event"] == "disconnected");
    let waits: Vec<u64> = lost.map(|event| event["retry_ms"].as_u64().unwrap()).collect();
    // A wait is half to all of 8, 16 and 32 ms.
    assert!(waits.len() == 3 && waits[1] >= 8 && waits[2] >= 16, "{waits:?}");
}

#[actix_web::test]
async fn a_server_that_accepts_and_stays_silent_is_left() {
    let (fake, address) = TestServer::start().await;
    let timing = Timing { connect: Duration::from_millis(200), ..timing() };
    let (result, _) = listen(&args(address, &[]), timing).await;
    drop(fake);
    let expected = format!("cannot reach ws://{address}/: the server does not answer");
    assert_eq!(result.unwrap_err().to_string(), expected);
}

#[actix_web::test]
async fn a_wss_url_uses_tls() {
    let (fake, address) = TestServer::start().await;
    let server = spawn(async move { fake.first_byte().await });
    let args = Line::parse_from(["listen", &format!("https://{address}/")]).args;
    let (result, _) = listen(&args, timing()).await;
    assert!(matches!(result, Err(ToolError::Client(ClientError::Unreachable { .. }))));
    assert_eq!(server.await.unwrap(), TLS_HANDSHAKE);
}

#[actix_web::test]
async fn a_missing_server_or_one_without_a_websocket_ends_it_at_once() {
    let (fake, address) = TestServer::start().await;
    let not_found = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
    let answered = spawn(async move { fake.answer(not_found).await });
    let (result, _) = listen(&args(address, &[]), timing()).await;
    let error = result.unwrap_err().to_string();
    assert!(error.contains("cannot reach ws://") && error.contains("404"), "{error}");
    let request = answered.await.unwrap();
    assert_eq!(request.header("sec-websocket-protocol"), Some("push-notification"));

    let (result, _) = listen(&args(address, &[]), timing()).await;
    assert!(matches!(result, Err(ToolError::Client(ClientError::Unreachable { .. }))));
}

#[test]
fn an_http_url_means_the_websocket_at_its_path() {
    for (text, url) in [
        ("http://a:8080", "ws://a:8080/"),
        ("https://a/b", "wss://a/b"),
        ("ws://a/", "ws://a/"),
        ("wss://a/", "wss://a/"),
    ] {
        assert_eq!(websocket(text).unwrap().as_str(), url);
    }
    assert!(websocket("ftp://a").is_err());
}

#[test]
fn a_host_and_port_alone_are_refused_with_a_suggested_url() {
    let expected = "expected a ws, wss, http or https URL";
    for (text, meant) in [
        ("localhost:8080", ": did you mean ws://localhost:8080/?"),
        ("127.0.0.1:8080", ": did you mean ws://127.0.0.1:8080/?"),
        ("ftp://a", ""),
    ] {
        assert_eq!(websocket(text), Err(format!("{expected}{meant}")));
    }
}

#[actix_web::test]
async fn a_failed_handshake_is_reported_with_what_to_do() {
    let upgrade = "HTTP/1.1 426 Upgrade Required\r\ncontent-length: 0\r\n\r\n";
    let closed =
        "HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\n\r\n{\"errno\":109}";
    let password = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n";
    for (answer, scheme, expected) in [
        ("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n", "ws", "try wss:"),
        ("HTTP/1.0 400 Bad Request\r\n\r\n", "ws", "try wss:"),
        ("\x15\x03\x01\x00\x02\x02\x46", "ws", "try wss:"),
        ("", "ws", "try wss:"),
        (upgrade, "ws", "does the proxy in front pass the upgrade?"),
        (closed, "ws", "the address with a token (`kalends access add`)"),
        (password, "ws", "this is not an answer of Kalends"),
        ("HTTP/1.1 400 Bad Request\r\n\r\n", "wss", "that port does not speak TLS: try ws:"),
    ] {
        let (fake, address) = TestServer::start().await;
        spawn(async move {
            let mut stream = fake.connection().await;
            stream.read_u8().await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
            // Ended by the agent: to close first, with unread bytes, would reset the connection.
            while stream.read_u8().await.is_ok() {}
        });
        let args = Line::parse_from(["listen", &format!("{scheme}://{address}/")]).args;
        let error = listen(&args, timing()).await.0.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn waits_are_jittered_between_half_and_all() {
    let wait = 1000;
    for _ in 0..100 {
        assert!((wait / 2..=wait).contains(&jittered(wait)));
    }
}
