//! Invalid frames and messages on a WebSocket: the server answers with the right close code or
//! error, and other connections are unaffected.

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use uuid::Uuid;

use crate::harness::{Agent, Bystander, Sender, Server, Socket};

/// The smallest frame limit that the setting allows.
const SMALL_FRAMES: &[&str] = &["--frame-bytes-max", "1024"];

#[actix_web::test]
async fn an_invalid_message_closes_the_session_with_the_right_code() {
    let server = Server::start_with(SMALL_FRAMES);
    let mut bystander = Bystander::connect(&server).await;
    let too_large = json!({"messageType": "ping", "padding": "x".repeat(1024)}).to_string();
    let cases = [
        ("not JSON", Message::text("hello"), 1007),
        ("nothing at all", Message::text(""), 1007),
        ("JSON that is cut off", Message::text(r#"{"messageType":"#), 1007),
        ("a list", Message::text("[]"), 1007),
        ("a number", Message::text("1"), 1007),
        ("null", Message::text("null"), 1007),
        ("a tower of lists", Message::text("[".repeat(1000)), 1007),
        ("a binary frame", Message::binary(b"{}".to_vec()), 1003),
        ("an empty binary frame", Message::binary(Vec::new()), 1003),
        ("a frame that is too large", Message::text(too_large), 1009),
        ("a second hello", Message::text(r#"{"messageType":"hello"}"#), 1002),
    ];
    join_all(cases.map(async |(what, message, code)| {
        let mut agent = Agent::new(&server).await;
        agent.socket().send(message).await.unwrap();
        assert_eq!(agent.socket().closed().await.0, Some(code), "{what}");
        agent.ended().await;
    }))
    .await;
    bystander.is_unaffected().await;
}

#[actix_web::test]
async fn invalid_frames_close_the_session() {
    let server = Server::start_with(SMALL_FRAMES);
    let mut bystander = Bystander::connect(&server).await;
    let long_ping = [b"\x89\xfe\0\x7e\0\0\0\0".as_slice(), &[0; 126]].concat();
    let cases = [
        ("a frame without a mask", b"\x81\x02{}".as_slice()),
        ("an opcode there is not", b"\x83\x80\0\0\0\0"),
        ("a reserved bit", b"\xc1\x82\0\0\0\0{}"),
        ("a text that is not UTF-8", b"\x81\x82\0\0\0\0\xff\xfe"),
        ("a ping in parts", b"\x09\x80\0\0\0\0"),
        ("a ping that is too long", &long_ping),
        ("a continuation of nothing", b"\x80\x80\0\0\0\0"),
        ("a text within a text in parts", b"\x01\x81\0\0\0\0{\x81\x82\0\0\0\0{}"),
        ("a length of 2^63 bytes", b"\x81\xff\x80\0\0\0\0\0\0\0\0\0\0\0"),
        ("a length of 1 TB", b"\x81\xff\0\0\x01\0\0\0\0\0\0\0\0\0"),
        ("a request in the place of a frame", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("a close code there is not", b"\x88\x82\0\0\0\0\0\x01"),
        ("half a close code", b"\x88\x81\0\0\0\0\x03"),
    ];
    join_all(cases.map(async |(what, bytes): (&str, &[u8])| {
        let mut agent = Agent::new(&server).await;
        agent.socket().stream().write_all(bytes).await.unwrap();
        let code = agent.socket().closed().await.0;
        assert!([None, Some(1002), Some(1009)].contains(&code), "{what}: {code:?}");
        agent.ended().await;
    }))
    .await;
    bystander.is_unaffected().await;
}

#[actix_web::test]
async fn a_first_message_other_than_hello_closes_the_connection() {
    let server = Server::start();
    let mut bystander = Bystander::connect(&server).await;
    let cases = [
        (r#"{"messageType":"register","channelID":"0b6ae4b6-6e75-4e1b-bc5d-a9b2d1a4a2a1"}"#, 1002),
        (r#"{"messageType":"ack","updates":[]}"#, 1002),
        (r#"{"messageType":"HELLO"}"#, 1002),
        (r#"{"messageType":"register"}"#, 1002),
        (r#"{"messageType":5}"#, 1002),
        ("{}", 1002),
        ("hello", 1007),
        ("", 1007),
    ];
    join_all(cases.map(async |(first, code)| {
        let mut socket = Socket::open(&server).await;
        socket.send(Message::text(first)).await.unwrap();
        assert_eq!(socket.closed().await.0, Some(code), "{first}");
        socket.ended().await;
    }))
    .await;
    bystander.is_unaffected().await;
}

#[actix_web::test]
async fn a_connection_without_a_hello_is_closed() {
    let server = Server::start_with(&["--hello-timeout-ms", "300"]);
    let mut bystander = Bystander::connect(&server).await;
    let mut silent = Socket::open(&server).await;
    assert_eq!(silent.closed().await.0, Some(4408));
    silent.ended().await;

    let mut chatty = Socket::open(&server).await;
    chatty.send(Message::Ping(Vec::new().into())).await.unwrap();
    assert_eq!(chatty.closed().await.0, Some(4408));
    chatty.ended().await;
    bystander.is_unaffected().await;
}

#[actix_web::test]
async fn a_hello_with_an_invalid_uaid_gets_a_new_one() {
    let server = Server::start();
    for uaid in [
        json!(""),
        json!("x"),
        json!(5),
        json!({"a": []}),
        json!("é".repeat(16)),
        json!("0".repeat(1000)),
        json!("0123456789abcdef0123456789abcdef"),
    ] {
        let mut socket = Socket::open(&server).await;
        socket.send_json(&json!({"messageType": "hello", "uaid": uaid, "use_webpush": true})).await;
        let hello = socket.receive().await.unwrap();
        assert_eq!(hello["status"], 200, "{uaid}");
        let given = hello["uaid"].as_str().unwrap();
        assert!(given.len() == 32 && uaid != given, "{uaid}: {given}");
    }
}

#[actix_web::test]
async fn invalid_commands_are_rejected_and_the_session_continues() {
    let (_server, mut agent) = Server::with_agent(&[]).await;
    let good = Uuid::new_v4().to_string();
    let mut garbage = Vec::new();
    for id in [
        json!(null),
        json!(""),
        json!("garbage"),
        json!(good.to_uppercase()),
        json!(good.replace('-', "")),
        json!(good.clone() + "0"),
        json!(7),
        json!([good]),
        json!("\u{0}".repeat(36)),
        json!("é".repeat(18)),
        json!("'; DROP TABLE users; --"),
    ] {
        garbage.push(json!({"messageType": "register", "channelID": id}));
        garbage.push(json!({"messageType": "unregister", "channelID": id}));
    }
    for key in ["", "garbage", "BCVx", &"A".repeat(5000)] {
        garbage.push(json!({"messageType": "register", "channelID": good, "key": key}));
    }
    garbage.push(json!({"messageType": "dance"}));
    garbage.push(json!({"messageType": "x".repeat(10_000)}));
    garbage.push(json!({"messageType": null, "a": 1}));
    garbage.push(json!({"messageType": "urgency", "min": "soon"}));
    for message in &garbage {
        let answer = agent.request(message).await.unwrap();
        let status = if message.get("key").is_some() { 400 } else { 401 };
        assert_eq!(answer["status"], status, "{message}: {answer}");
        let is_register = message["messageType"] == "register";
        let endpoint = is_register.then(|| Value::from(""));
        assert_eq!(answer.get("pushEndpoint"), endpoint.as_ref(), "{message}: {answer}");
        assert!(answer["reason"].is_string(), "{message}: {answer}");
        assert!(answer.to_string().len() < 1000, "{message}: {answer}");
        let known = ["register", "unregister", "urgency"].map(Value::from);
        if known.contains(&message["messageType"]) {
            assert_eq!(answer["messageType"], message["messageType"]);
        }
    }
    let channel = agent.register().await;
    Sender::new().push_to(&mut agent, &channel, "still here").await;
}

#[actix_web::test]
async fn invalid_acks_are_ignored() {
    let (_server, mut agent, channel) = Server::with_subscribed(&[]).await;
    let version = "0".repeat(32);
    for updates in [
        json!(null),
        json!("all"),
        json!({}),
        json!([]),
        json!([5, null, "x"]),
        json!([{}]),
        json!([{"channelID": channel.id}]),
        json!([{"version": version}]),
        json!([{"channelID": "x", "version": version}]),
        json!([{"channelID": channel.id, "version": "x"}]),
        json!([{"channelID": channel.id, "version": 5, "code": "x"}]),
        json!([{"channelID": channel.id, "version": version, "code": 100}]),
        json!(vec![json!({"channelID": Uuid::nil().to_string(), "version": version}); 500]),
    ] {
        let ack = json!({"messageType": "ack", "updates": updates});
        agent.socket().send_json(&ack).await;
        agent.sync().await;
    }
    agent.socket().send_json(&json!({"messageType": "ack"})).await;
    agent.socket().send_json(&json!({"messageType": "nack", "version": [], "code": {}})).await;
    agent.socket().send_json(&json!({"messageType": "broadcast_subscribe", "broadcasts": 5})).await;
    Sender::new().push_to(&mut agent, &channel, "still here").await;
}

#[actix_web::test]
async fn a_fragmented_message_is_assembled() {
    let server = Server::start_with(SMALL_FRAMES);
    let mut socket = Socket::open(&server).await;
    for (part, of, is_last) in [
        (r#"{"messageType":"#, Data::Text, false),
        (r#""hello","use_"#, Data::Continue, false),
        ("", Data::Continue, false),
        (r#"webpush":true,"x":"é"}"#, Data::Continue, true),
    ] {
        socket.send(frame(part.as_bytes(), of, is_last)).await.unwrap();
        socket.send(Message::Ping(Vec::new().into())).await.unwrap();
    }
    assert_eq!(socket.receive().await.unwrap()["status"], 200);

    // A fragment boundary may split a UTF-8 character.
    let ping = r#"{"messageType":"ping","x":"é"}"#.as_bytes();
    let (before, after) = ping.split_at(ping.len() - 3);
    socket.send(frame(before, Data::Text, false)).await.unwrap();
    socket.send(frame(after, Data::Continue, true)).await.unwrap();
    assert_eq!(socket.receive().await.unwrap(), json!({}));
}

#[actix_web::test]
async fn a_fragmented_message_over_the_limit_closes_the_session() {
    let server = Server::start_with(SMALL_FRAMES);
    let mut bystander = Bystander::connect(&server).await;
    let mut agent = Agent::new(&server).await;
    agent.socket().send(frame(&[b' '; 600], Data::Text, false)).await.unwrap();
    agent.socket().send(frame(&[b' '; 600], Data::Continue, false)).await.unwrap();
    assert_eq!(agent.socket().closed().await.0, Some(1009));
    agent.ended().await;

    let mut agent = Agent::new(&server).await;
    agent.socket().send(frame(b"{", Data::Binary, false)).await.unwrap();
    assert_eq!(agent.socket().closed().await.0, Some(1003));
    agent.ended().await;
    bystander.is_unaffected().await;
}

/// One fragment of a fragmented message.
fn frame(part: &[u8], of: Data, is_last: bool) -> Message {
    Message::Frame(Frame::message(part.to_vec(), OpCode::Data(of), is_last))
}
