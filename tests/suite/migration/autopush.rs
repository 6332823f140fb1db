//! An autopush-rs 1.83, as far as its Redis and its endpoints show it: the commands and values are those of its
//! `redis_client` (docs/sources.md#autopush-rs-in-redis).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fernet::Fernet;
use redis::{Connection, cmd};
use serde_json::{Value, json};
use uuid::Uuid;

use super::redis_server::RedisServer;
use crate::harness::unix_now_s;

pub(crate) struct Autopush {
    redis: Connection,
    pub(crate) crypto_key: String,
}

/// A message that waits for a user.
pub(crate) struct Waiting<'a> {
    pub(crate) channel: Uuid,
    pub(crate) topic: Option<&'a str>,
    pub(crate) body: &'a str,
    /// When it was stored, in seconds.
    pub(crate) stored_s: u64,
    pub(crate) ttl_s: u64,
}

impl<'a> Waiting<'a> {
    /// Without a topic, for an hour.
    pub(crate) fn new(channel: Uuid, body: &'a str, stored_s: u64) -> Self {
        Self { channel, topic: None, body, stored_s, ttl_s: 3600 }
    }
}

impl Autopush {
    pub(crate) fn on(redis: &RedisServer) -> Self {
        Self { redis: redis.connection(), crypto_key: Fernet::generate_key() }
    }

    /// `add_user`, and `add_channel` for each channel.
    pub(crate) fn user(&mut self, channels: &[Uuid]) -> Uuid {
        self.user_of("webpush", "null", channels)
    }

    /// The same for any router type, with the JSON of its `router_data`.
    pub(crate) fn user_of(&mut self, router_type: &str, data: &str, channels: &[Uuid]) -> Uuid {
        let uaid = Uuid::new_v4();
        let now_ms = unix_now_s() * 1000;
        let record = format!(
            r#"{{"uaid":"{}","connected_at":{now_ms},"router_type":"{router_type}","router_data":{data},"node_id":"http://10.0.0.1:8081","record_version":1,"priv_channels":[]}}"#,
            uaid.simple()
        );
        self.set(&format!("autopush/co/{uaid}"), &now_ms.to_string());
        self.set(&format!("autopush/user/{uaid}"), &record);
        for channel in channels {
            let key = format!("autopush/channels/{uaid}");
            self.execute(&["RPUSH", &key, &channel.to_string()]);
        }
        uaid
    }

    /// `save_message` with what `autoendpoint` stores.
    pub(crate) fn message(&mut self, uaid: Uuid, message: &Waiting<'_>) {
        let Waiting { channel, topic, body, stored_s, ttl_s } = *message;
        // The millisecond distinguishes messages of one second.
        let stored_ms = stored_s * 1000 + u64::from(body.len() as u32 % 1000);
        let id = match topic {
            Some(topic) => format!("01:{channel}:{topic}"),
            None => format!("02:{stored_ms}:{channel}"),
        };
        let mut value = json!({
            "channelID": channel.to_string(),
            "version": self.version(uaid, channel, &id),
            "timestamp": stored_s,
            "ttl": ttl_s,
            "data": URL_SAFE_NO_PAD.encode(body),
            "headers": {"encoding": "aes128gcm"},
        });
        match topic {
            Some(topic) => value["topic"] = topic.into(),
            None => value["sortkey_timestamp"] = stored_ms.into(),
        }
        let expiry = (stored_s + ttl_s).to_string();
        let key = format!("autopush/msg/{uaid}/{id}");
        self.execute(&["SET", &key, &value.to_string(), "EXAT", &expiry]);
        self.execute(&["ZADD", &format!("autopush/msgs_exp/{uaid}"), &expiry, &id]);
        self.execute(&["ZADD", &format!("autopush/msgs/{uaid}"), &stored_s.to_string(), &id]);
    }

    /// `increment_storage`: the agent has acked what was stored up to that second.
    pub(crate) fn acked(&mut self, uaid: Uuid, second: u64) {
        self.set(&format!("autopush/timestamp/{uaid}"), &second.to_string());
    }

    /// A value that no autopush-rs has written.
    pub(crate) fn set(&mut self, key: &str, value: &str) {
        self.execute(&["SET", key, value, "EX", "5184000"]);
    }

    /// The path of an endpoint without a VAPID key.
    pub(crate) fn endpoint(&self, uaid: Uuid, channel: Uuid) -> String {
        let ids = [*uaid.as_bytes(), *channel.as_bytes()].concat();
        format!("/wpush/v1/{}", self.fernet().encrypt(&ids).trim_end_matches('='))
    }

    /// All keys and values, to see that nothing was changed.
    pub(crate) fn keys(&mut self) -> Vec<String> {
        let mut keys: Vec<String> =
            cmd("KEYS").arg("*").query(&mut self.redis).expect("Redis answers");
        keys.sort();
        keys
    }

    fn version(&self, uaid: Uuid, channel: Uuid, id: &str) -> Value {
        let (version, rest) = id.split_once(':').expect("an id has a version");
        let plain = format!("{version}:{}:{}:{rest}", uaid.simple(), channel.simple());
        self.fernet().encrypt(plain.as_bytes()).trim_end_matches('=').into()
    }

    fn fernet(&self) -> Fernet {
        Fernet::new(&self.crypto_key).expect("it was generated")
    }

    fn execute(&mut self, words: &[&str]) {
        cmd(words[0]).arg(&words[1..]).exec(&mut self.redis).expect("Redis executes it");
    }
}
