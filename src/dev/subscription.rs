//! The subscription that an application server gets of a user agent: `PushSubscription.toJSON()` of the Push API.

use std::path::Path;

use serde::{Deserialize, Serialize};
use url::Url;

use super::base64url::{from_base64url, to_base64url};
use super::files::{FileError, read_json, write_private};
use super::keypair::{PUBLIC_BYTES, is_public};

/// Size of a subscription's authentication secret, in bytes.
pub const AUTH_BYTES: usize = 16;

/// Browsers add `expirationTime` and may add more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscription {
    pub endpoint: Url,
    pub keys: Keys,
}

/// The keys that messages to a subscription are encrypted with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "KeyTexts", into = "KeyTexts")]
pub struct Keys {
    /// The public key of the user agent.
    pub p256dh: [u8; PUBLIC_BYTES],
    /// The secret that messages are authenticated with.
    pub auth: [u8; AUTH_BYTES],
}

/// The keys in base64url, as a browser writes them.
#[derive(Serialize, Deserialize)]
pub struct KeyTexts {
    pub p256dh: String,
    pub auth: String,
}

impl Subscription {
    /// The JSON as a browser writes it.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("texts can be written as JSON")
    }

    pub fn load(path: &Path) -> Result<Self, FileError> {
        read_json(path, "a subscription")
    }

    /// Writes a file with mode 0600: its reader can send messages.
    pub fn save(&self, path: &Path) -> Result<(), FileError> {
        write_private(path, &(self.to_json() + "\n"))
    }
}

impl TryFrom<KeyTexts> for Keys {
    type Error = String;

    fn try_from(KeyTexts { p256dh, auth }: KeyTexts) -> Result<Self, String> {
        let p256dh = from_base64url(&p256dh).filter(|bytes| is_public(bytes));
        let p256dh = p256dh.and_then(|bytes| bytes.try_into().ok());
        let auth = from_base64url(&auth).and_then(|bytes| bytes.try_into().ok());
        Ok(Self {
            p256dh: p256dh.ok_or("p256dh is not a P-256 public key of 65 bytes in base64url")?,
            auth: auth.ok_or("auth is not 16 bytes in base64url")?,
        })
    }
}

impl From<Keys> for KeyTexts {
    fn from(Keys { p256dh, auth }: Keys) -> Self {
        Self { p256dh: to_base64url(&p256dh), auth: to_base64url(&auth) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dev::keypair::KeyPair;

    #[test]
    fn a_subscription_is_read_as_it_was_written() {
        let keys = Keys { p256dh: *KeyPair::generate().public(), auth: [7; AUTH_BYTES] };
        let endpoint = Url::parse("http://127.0.0.1:8080/wpush/abc").unwrap();
        let subscription = Subscription { endpoint, keys };
        let read: Subscription = serde_json::from_str(&subscription.to_json()).unwrap();
        assert_eq!(read, subscription);
    }

    /// A subscription of Firefox, with the padding that some libraries add.
    #[test]
    fn a_browsers_subscription_is_read() {
        let text = r#"{
            "endpoint": "https://updates.push.services.mozilla.com/wpush/v2/gAAAA",
            "expirationTime": null,
            "keys": {
                "auth": "BTBZMqHH6r4Tts7J_aSIgg==",
                "p256dh": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4="
            }
        }"#;
        let subscription: Subscription = serde_json::from_str(text).unwrap();
        assert_eq!(subscription.keys.auth[..2], [5, 48]);
    }

    #[test]
    fn errors_of_a_subscription_are_reported() {
        let point = to_base64url(KeyPair::generate().public());
        let json = |endpoint: &str, p256dh: &str, auth: &str| {
            let keys = serde_json::json!({"p256dh": p256dh, "auth": auth});
            serde_json::json!({"endpoint": endpoint, "keys": keys}).to_string()
        };
        for (text, expected) in [
            (
                json("nowhere", &point, "AAAAAAAAAAAAAAAAAAAAAA"),
                "relative URL without a base: \"nowhere\"",
            ),
            (json("http://a", "BCVx", "AAAAAAAAAAAAAAAAAAAAAA"), "p256dh is not a P-256"),
            (json("http://a", &point, "AAAA"), "auth is not 16 bytes"),
            ("{}".to_owned(), "missing field `endpoint`"),
        ] {
            let error = serde_json::from_str::<Subscription>(&text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
