//! The subscription that an application server gets of a user agent: `PushSubscription.toJSON()` of the Push API.

use std::path::Path;

use serde::{Deserialize, Serialize};
use url::Url;

use super::encrypt::AUTH_BYTES;
use super::keypair::{PUBLIC_BYTES, is_public};
use super::{ToolError, from_base64url, read, to_base64url, write_private};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    pub endpoint: Url,
    pub keys: Keys,
}

/// The keys that messages to a subscription are encrypted with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    /// The public key of the user agent.
    pub p256dh: [u8; PUBLIC_BYTES],
    /// The secret that messages are authenticated with.
    pub auth: [u8; AUTH_BYTES],
}

/// The JSON. Browsers add `expirationTime` and may add more.
#[derive(Serialize, Deserialize)]
struct Json {
    endpoint: String,
    keys: JsonKeys,
}

#[derive(Serialize, Deserialize)]
struct JsonKeys {
    p256dh: String,
    auth: String,
}

impl Subscription {
    /// Parses the result of a browser's `JSON.stringify(subscription)`.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let json: Json = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let endpoint =
            Url::parse(&json.endpoint).map_err(|error| format!("its endpoint: {error}"))?;
        Ok(Self { endpoint, keys: Keys::parse(&json.keys.p256dh, &json.keys.auth)? })
    }

    /// The JSON as a browser writes it.
    pub fn to_json(&self) -> String {
        let (p256dh, auth) = self.keys.to_texts();
        let json = Json { endpoint: self.endpoint.to_string(), keys: JsonKeys { p256dh, auth } };
        serde_json::to_string(&json).expect("texts can be written as JSON")
    }

    pub fn load(path: &Path) -> Result<Self, ToolError> {
        Self::from_json(&read(path)?).map_err(|why| ToolError::Malformed {
            path: path.to_owned(),
            what: "a subscription",
            why,
        })
    }

    /// Writes a file with mode 0600: its reader can send messages.
    pub fn save(&self, path: &Path) -> Result<(), ToolError> {
        write_private(path, &(self.to_json() + "\n"))
    }
}

impl Keys {
    /// Parses the two keys as a browser writes them.
    pub fn parse(p256dh: &str, auth: &str) -> Result<Self, String> {
        let p256dh = from_base64url(p256dh).filter(|bytes| is_public(bytes));
        let p256dh = p256dh.and_then(|bytes| bytes.try_into().ok());
        let auth = from_base64url(auth).and_then(|bytes| bytes.try_into().ok());
        Ok(Self {
            p256dh: p256dh.ok_or("p256dh is not a P-256 public key of 65 bytes in base64url")?,
            auth: auth.ok_or("auth is not 16 bytes in base64url")?,
        })
    }

    /// The two keys, `p256dh` and `auth`, as a browser writes them.
    pub fn to_texts(&self) -> (String, String) {
        (to_base64url(&self.p256dh), to_base64url(&self.auth))
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
        assert_eq!(Subscription::from_json(&subscription.to_json()), Ok(subscription));
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
        assert_eq!(Subscription::from_json(text).unwrap().keys.auth[..2], [5, 48]);
    }

    #[test]
    fn errors_of_a_subscription_are_reported() {
        let point = to_base64url(KeyPair::generate().public());
        let json = |endpoint: &str, p256dh: &str, auth: &str| {
            let keys = serde_json::json!({"p256dh": p256dh, "auth": auth});
            serde_json::json!({"endpoint": endpoint, "keys": keys}).to_string()
        };
        for (text, expected) in [
            (json("nowhere", &point, "AAAAAAAAAAAAAAAAAAAAAA"), "its endpoint: "),
            (json("http://a", "BCVx", "AAAAAAAAAAAAAAAAAAAAAA"), "p256dh is not a P-256"),
            (json("http://a", &point, "AAAA"), "auth is not 16 bytes"),
            ("{}".to_owned(), "missing field `endpoint`"),
        ] {
            let error = Subscription::from_json(&text).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
