//! An autopush-rs 1.83, as far as its database and its endpoints show it (docs/sources.md#databases-of-autopush-rs).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fernet::Fernet;
use uuid::Uuid;

use crate::harness::unix_now_s;

pub(crate) struct Autopush<D> {
    pub(crate) database: D,
    pub(crate) crypto_key: String,
}

/// A database of autopush-rs, written to as that does.
pub(crate) trait Database {
    /// Starts one without users.
    async fn start() -> Self;
    /// The words behind `kalends import`.
    fn import(&self) -> Vec<String>;
    /// `add_user`, and `add_channel` for each channel.
    fn add_user(&mut self, user: &User<'_>);
    fn save_message(&mut self, uaid: Uuid, message: &StoredMessage<'_>);
    /// The agent has acked what was stored up to that second.
    fn increment_storage(&mut self, uaid: Uuid, second: u64);
    /// Writes what autopush-rs does not: a record that is none, a key that is no uaid, and odd values of these users.
    fn add_unreadable(&mut self, odd: [Uuid; 3]);
    /// What is in it, to see that nothing was changed.
    fn contents(&mut self) -> Vec<String>;
}

pub(crate) struct User<'a> {
    pub(crate) uaid: Uuid,
    pub(crate) connected_ms: u64,
    pub(crate) router_type: &'a str,
    pub(crate) router_data: &'a str,
    pub(crate) channels: &'a [Uuid],
}

/// The columns or fields of a message, as `autoendpoint` fills them.
pub(crate) struct StoredMessage<'a> {
    pub(crate) id: &'a str,
    pub(crate) channel: Uuid,
    pub(crate) version: &'a str,
    pub(crate) stored_s: u64,
    pub(crate) stored_ms: u64,
    pub(crate) ttl_s: u64,
    pub(crate) topic: Option<&'a str>,
    pub(crate) data: &'a str,
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

impl<D: Database> Autopush<D> {
    pub(crate) async fn start() -> Self {
        Self { database: D::start().await, crypto_key: Fernet::generate_key() }
    }

    pub(crate) fn user(&mut self, channels: &[Uuid]) -> Uuid {
        self.user_of("webpush", "null", channels)
    }

    /// The same for any router type, with the JSON of its `router_data`.
    pub(crate) fn user_of(&mut self, router_type: &str, data: &str, channels: &[Uuid]) -> Uuid {
        let (uaid, connected_ms) = (Uuid::new_v4(), unix_now_s() * 1000);
        let user = User { uaid, connected_ms, router_type, router_data: data, channels };
        self.database.add_user(&user);
        uaid
    }

    pub(crate) fn message(&mut self, uaid: Uuid, message: &Waiting<'_>) {
        let Waiting { channel, topic, body, stored_s, ttl_s } = *message;
        // The millisecond distinguishes messages of one second.
        let stored_ms = stored_s * 1000 + u64::from(body.len() as u32 % 1000);
        let id = match topic {
            Some(topic) => format!("01:{channel}:{topic}"),
            None => format!("02:{stored_ms}:{channel}"),
        };
        let version = self.version(uaid, channel, &id);
        let (id, version, data) = (&*id, &*version, &*URL_SAFE_NO_PAD.encode(body));
        let message =
            StoredMessage { id, channel, version, stored_s, stored_ms, ttl_s, topic, data };
        self.database.save_message(uaid, &message);
    }

    /// The path of an endpoint without a VAPID key.
    pub(crate) fn endpoint(&self, uaid: Uuid, channel: Uuid) -> String {
        let ids = [*uaid.as_bytes(), *channel.as_bytes()].concat();
        format!("/wpush/v1/{}", self.fernet().encrypt(&ids).trim_end_matches('='))
    }

    fn version(&self, uaid: Uuid, channel: Uuid, id: &str) -> String {
        let (version, rest) = id.split_once(':').expect("an id has a version");
        let plain = format!("{version}:{}:{}:{rest}", uaid.simple(), channel.simple());
        self.fernet().encrypt(plain.as_bytes()).trim_end_matches('=').to_owned()
    }

    fn fernet(&self) -> Fernet {
        Fernet::new(&self.crypto_key).expect("it was generated")
    }
}
