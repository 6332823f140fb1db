//! The agent in conversations written out by hand.

use super::*;
use crate::dev::base64url::to_base64url;
use crate::dev::encrypt::{Coding, encrypt};
use serde_json::Value;

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn new_identity(vapid_public_key: Option<String>) -> Identity {
    Identity::generate(&Url::parse("ws://a/").unwrap(), vapid_public_key)
}

fn subscribed() -> Agent {
    let mut agent = Agent::new(new_identity(None));
    agent.hello();
    agent.on_message(r#"{"messageType":"hello","status":200,"uaid":"abc"}"#).unwrap();
    agent.on_message(&registered(&agent)).unwrap();
    agent
}

fn registered(agent: &Agent) -> String {
    json!({
        "messageType": "register", "status": 200, "channelID": agent.identity.channel,
        "pushEndpoint": "http://push.example/wpush/token",
    })
    .to_string()
}

fn notification(agent: &Agent, version: &str, message: &[u8], coding: Coding) -> String {
    let keys = agent.identity.subscription().unwrap().keys;
    let payload = encrypt(&keys, message, coding).unwrap();
    let headers = match payload.encoding {
        Encoding::Aes128Gcm => json!({"encoding": "aes128gcm"}),
        Encoding::AesGcm { encryption, crypto_key } => json!({
            "encoding": "aesgcm", "encryption": encryption, "crypto_key": crypto_key,
        }),
        Encoding::Plain => json!(null),
    };
    json!({
        "messageType": "notification", "channelID": agent.identity.channel,
        "version": version, "data": to_base64url(&payload.data), "headers": headers,
    })
    .to_string()
}

fn ack_code(step: &Step) -> u64 {
    let ack = value(&step.send[0]);
    assert_eq!((step.send.len(), &ack["messageType"]), (1, &json!("ack")));
    ack["updates"][0]["code"].as_u64().unwrap()
}

#[test]
fn a_new_agent_sends_hello_without_a_uaid_and_registers_its_channel() {
    let mut agent = Agent::new(new_identity(Some("BKEY".into())));
    let hello = value(&agent.hello());
    assert_eq!(hello, json!({"messageType": "hello", "use_webpush": true, "broadcasts": {}}));

    let heard = r#"{"messageType":"hello","status":200,"uaid":"abc","use_webpush":true}"#;
    let step = agent.on_message(heard).unwrap();
    assert_eq!(step.events, [Event::Connected { uaid: "abc".into() }]);
    let channel = agent.identity.channel.clone();
    let register = json!({"messageType": "register", "channelID": channel, "key": "BKEY"});
    assert_eq!(value(&step.send[0]), register);
    assert!(agent.is_waiting());

    let step = agent.on_message(&registered(&agent)).unwrap();
    let subscription = agent.identity.subscription().unwrap();
    assert_eq!(subscription.endpoint.as_str(), "http://push.example/wpush/token");
    assert_eq!(step.events, [Event::Subscribed { subscription }]);
    assert!(!agent.is_waiting());
}

#[test]
fn a_known_agent_sends_its_uaid_and_does_not_register_again() {
    let mut agent = subscribed();
    assert_eq!(value(&agent.hello())["uaid"], "abc");
    let step = agent.on_message(r#"{"messageType":"hello","status":200,"uaid":"abc"}"#).unwrap();
    assert!(step.send.is_empty());
    assert!(matches!(step.events[1], Event::Subscribed { .. }));
}

#[test]
fn an_agent_that_the_server_forgot_registers_a_new_channel() {
    let mut agent = subscribed();
    let channel = agent.identity.channel.clone();
    agent.hello();
    let step = agent.on_message(r#"{"messageType":"hello","status":200,"uaid":"def"}"#).unwrap();
    assert_eq!(step.events, [Event::Connected { uaid: "def".into() }, Event::Forgotten]);
    assert_eq!(value(&step.send[0])["messageType"], "register");
    assert_ne!(agent.identity.channel, channel);
}

#[test]
fn messages_of_both_encodings_are_decrypted_and_acked() {
    let mut agent = subscribed();
    for (version, coding, encoding) in
        [("v1", Coding::Aes128gcm, "aes128gcm"), ("v2", Coding::Aesgcm, "aesgcm")]
    {
        let heard = notification(&agent, version, b"hello", coding);
        let step = agent.on_message(&heard).unwrap();
        let (version, encoding) = (version.to_owned(), Some(encoding));
        let body = b"hello".to_vec();
        assert_eq!(step.events, [Event::Message { version, encoding, body }]);
        assert_eq!(ack_code(&step), 100);
    }
}

#[test]
fn a_push_without_a_message_is_acked() {
    let mut agent = subscribed();
    let channel = agent.identity.channel.clone();
    let heard = json!({"messageType":"notification","channelID":channel,"version":"v"});
    let step = agent.on_message(&heard.to_string()).unwrap();
    let received = Event::Message { version: "v".into(), encoding: None, body: Vec::new() };
    assert_eq!(step.events, [received]);
    assert_eq!(ack_code(&step), 100);
}

#[test]
fn a_message_that_cannot_be_decrypted_is_acked_with_101() {
    let (mut agent, other) = (subscribed(), subscribed());
    let heard = notification(&other, "v", b"hello", Coding::Aes128gcm);
    let heard = heard.replace(&other.identity.channel, &agent.identity.channel);
    let step = agent.on_message(&heard).unwrap();
    assert!(matches!(&step.events[..], [Event::Undecryptable { .. }]), "{step:?}");
    assert_eq!(ack_code(&step), 101);
}

#[test]
fn a_repeat_and_a_message_for_another_channel_are_acked_with_102() {
    let (mut agent, other) = (subscribed(), subscribed());
    let heard = notification(&agent, "v", b"hello", Coding::Aes128gcm);
    agent.on_message(&heard).unwrap();
    let step = agent.on_message(&heard).unwrap();
    assert_eq!(step.events, [Event::Repeated { version: "v".into() }]);
    assert_eq!(ack_code(&step), 102);

    let heard = notification(&other, "w", b"hello", Coding::Aes128gcm);
    let step = agent.on_message(&heard).unwrap();
    assert!(matches!(&step.events[0], Event::Undecryptable { .. }));
    assert_eq!(ack_code(&step), 102);
}

#[test]
fn repeats_are_known_among_a_bounded_number_of_messages() {
    let mut agent = subscribed();
    for number in 0..REMEMBERED_MAX + 5 {
        agent.remember(number.to_string());
    }
    assert_eq!(agent.remembered.len(), REMEMBERED_MAX);
    assert!(!agent.remembered.contains(&"4".to_owned()));
    assert!(agent.remembered.contains(&"5".to_owned()));
}

#[test]
fn versions_of_broadcasts_are_reported_and_sent_with_the_next_hello() {
    let ids = ["news".to_owned(), "none".to_owned()];
    let mut agent = Agent::new(new_identity(None)).with_broadcasts(&ids);
    let none = json!({"news": "", "none": ""});
    assert_eq!(value(&agent.hello())["broadcasts"], none);
    let hello = r#"{"messageType":"hello","status":200,"uaid":"abc",
        "broadcasts":{"errors":{"none":"Broadcast not found"},"news":"\"1\""}}"#;
    let step = agent.on_message(hello).unwrap();
    let news = |version: &str| Event::Broadcast { id: "news".into(), version: version.into() };
    let (id, reason) = ("none".into(), "Broadcast not found".into());
    let connected = Event::Connected { uaid: "abc".into() };
    assert_eq!(step.events, [connected, Event::BroadcastRefused { id, reason }, news("\"1\"")]);
    let step =
        agent.on_message(r#"{"messageType":"broadcast","broadcasts":{"news":"2"}}"#).unwrap();
    assert_eq!((step.events, step.send), (vec![news("2")], Vec::new()));
    assert_eq!(value(&agent.hello())["broadcasts"], json!({"news": "2", "none": ""}));
}

#[test]
fn pings_and_unknown_messages_are_ignored() {
    let mut agent = subscribed();
    for text in ["{}", r#"{"messageType":"broadcast","broadcasts":5}"#, r#"{"messageType":"x"}"#] {
        assert_eq!(agent.on_message(text), Ok(Step::default()));
    }
}

#[test]
fn a_server_that_refuses_or_errs_is_reported() {
    for (text, expected) in [
        (r#"{"messageType":"hello","status":503,"reason":"busy"}"#, "with status 503: busy"),
        (r#"{"messageType":"hello","status":200}"#, "hello has no usable uaid"),
        (r#"{"messageType":"hello","uaid":"a"}"#, "hello has no usable status"),
        (r#"{"messageType":"register","status":200}"#, "register out of turn"),
        (r#"{"messageType":"notification"}"#, "notification out of turn"),
        ("[]", "not a JSON object"),
        ("nonsense", "not a JSON object"),
    ] {
        let mut agent = Agent::new(new_identity(None));
        agent.hello();
        let error = agent.on_message(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_notification_that_firefox_would_refuse_is_reported() {
    let mut agent = subscribed();
    let channel = agent.identity.channel.clone();
    let aes128gcm = json!({"encoding": "aes128gcm"});
    for (data, headers, expected) in [
        (json!("AA=="), aes128gcm.clone(), "data"),
        (json!("A/A"), aes128gcm.clone(), "data"),
        (Value::Null, aes128gcm, "data"),
        (json!("AA"), Value::Null, "headers"),
        (json!("AA"), json!({"encoding": "gzip"}), "headers"),
        (json!("AA"), json!({"encoding": "aesgcm"}), "headers"),
    ] {
        let heard = json!({
            "messageType": "notification", "channelID": channel, "version": "v",
            "data": data, "headers": headers,
        });
        let error = agent.on_message(&heard.to_string()).unwrap_err();
        assert_eq!(error, AgentError::Malformed { what: "notification", field: expected });
    }
}
