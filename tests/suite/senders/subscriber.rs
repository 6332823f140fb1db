//! A user agent over TLS with the keys of a subscription, which decrypts what application servers send.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kalends::dev::encrypt::{AUTH_BYTES, decrypt};
use kalends::dev::keypair::KeyPair;
use serde_json::{Value, json};
use state_machine::{Encoding, Payload};

use crate::harness::{Authority, Server, TlsAgent};

const AUTH: [u8; AUTH_BYTES] = *b"sixteen secrets!";

const CHANNEL: &str = "deadbeef-0000-4000-8000-000000000000";

/// A user agent with one channel.
pub(super) struct Subscriber {
    agent: TlsAgent,
    pair: KeyPair,
    endpoint: String,
}

/// A message as a page gets it, with the name of the encoding that it had.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Received {
    pub(super) text: String,
    pub(super) encoding: String,
}

impl Subscriber {
    /// Connects, and registers a channel for the owner of this VAPID key.
    pub(super) async fn new(authority: &Authority, server: &Server, vapid_key: &str) -> Self {
        let mut agent = authority.agent(server).await;
        let register = json!({"messageType": "register", "channelID": CHANNEL, "key": vapid_key});
        let answer = agent.ask(&register).await;
        let endpoint = answer["pushEndpoint"].as_str().expect("the channel is registered");
        Self { endpoint: endpoint.to_owned(), agent, pair: KeyPair::generate() }
    }

    /// What a page gets from `PushSubscription.toJSON()`.
    pub(super) fn subscription(&self) -> Value {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let keys = json!({"p256dh": text(self.pair.public()), "auth": text(&AUTH)});
        json!({"endpoint": self.endpoint, "expirationTime": null, "keys": keys})
    }

    pub(super) async fn unregister(&mut self) {
        let unregister = json!({"messageType": "unregister", "channelID": CHANNEL});
        assert_eq!(self.agent.ask(&unregister).await["status"], 200);
    }

    /// Names the lowest urgency that the agent wants.
    pub(super) async fn wants(&mut self, urgency: &str) {
        let answer = self.agent.ask(&json!({"messageType": "urgency", "min": urgency})).await;
        assert_eq!(answer, json!({"messageType": "urgency", "status": 200}));
    }

    /// Receives the next message, acknowledges it and decrypts it. One without a payload has an empty text.
    pub(super) async fn take(&mut self) -> Received {
        let message = self.agent.receive().await;
        assert_eq!(message["messageType"], "notification", "{message}");
        let update =
            json!({"channelID": message["channelID"], "version": message["version"], "code": 100});
        self.agent.send(&json!({"messageType": "ack", "updates": [update]})).await;
        let Some(data) = message["data"].as_str() else {
            return Received { text: String::new(), encoding: String::new() };
        };
        let headers = &message["headers"];
        let header = |name: &str| headers[name].as_str().expect("the header is there");
        let encoding = match header("encoding") {
            "aesgcm" => Encoding::AesGcm {
                encryption: header("encryption").into(),
                crypto_key: header("crypto_key").into(),
            },
            _ => Encoding::Aes128Gcm,
        };
        let data = URL_SAFE_NO_PAD.decode(data).expect("data is base64url").into();
        let text = decrypt(&self.pair, &AUTH, &Payload { data, encoding });
        let text = String::from_utf8(text.expect("it is encrypted for this agent"));
        Received { text: text.expect("tests send text"), encoding: header("encoding").to_owned() }
    }

    /// The server has sent no further message.
    pub(super) async fn has_nothing_more(&mut self) {
        let answer = self.agent.ask(&json!({"messageType": "a mark"})).await;
        assert_eq!(answer["messageType"], "a mark", "{answer}");
    }
}
