//! The state of a user agent: its id, its channel, and the keys of its subscription.

use std::path::Path;

use aws_lc_rs::rand;
use serde::{Deserialize, Serialize};
use url::Url;
use uuid::Uuid;

use super::encrypt::AUTH_BYTES;
use super::keypair::{KeyPair, is_public};
use super::subscription::{Keys, Subscription};
use super::{ToolError, from_base64url, read, to_base64url, write_private};

/// A user agent with one channel.
#[derive(Debug)]
pub struct Identity {
    /// The URL of its server. None in files of early versions.
    pub server: Option<Url>,
    /// The id that the server assigned.
    pub uaid: Option<String>,
    pub channel: String,
    /// The endpoint of the channel, once it is registered.
    pub endpoint: Option<Url>,
    /// The VAPID key, in base64url, to which sending is restricted.
    pub vapid_public_key: Option<String>,
    /// The key pair that messages are encrypted for.
    pub pair: KeyPair,
    /// The secret that messages are authenticated with.
    pub auth: [u8; AUTH_BYTES],
}

/// The JSON in a file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Json {
    server: Option<Url>,
    uaid: Option<String>,
    channel: String,
    endpoint: Option<Url>,
    vapid_public_key: Option<String>,
    private_key: String,
    auth: String,
}

impl Identity {
    /// A new user agent for the server at that URL.
    pub fn generate(server: &Url, vapid_public_key: Option<String>) -> Self {
        let mut auth = [0; AUTH_BYTES];
        rand::fill(&mut auth).expect("the system gives random bytes");
        let pair = KeyPair::generate();
        Self {
            server: Some(server.clone()),
            uaid: None,
            channel: channel(),
            endpoint: None,
            vapid_public_key,
            pair,
            auth,
        }
    }

    /// Reads a file, or makes a new agent if there is no file. A file of another server is refused: that server would
    /// assign a new id, and the old subscription would be lost. A file with another VAPID key is refused too: the key
    /// cannot be changed.
    pub fn load_or_generate(
        path: &Path,
        server: &Url,
        vapid_public_key: Option<String>,
    ) -> Result<Self, ToolError> {
        if !path.exists() {
            return Ok(Self::generate(server, vapid_public_key));
        }
        let malformed =
            |why| ToolError::Malformed { path: path.to_owned(), what: "a user agent's state", why };
        let mut identity = Self::from_json(&read(path)?).map_err(malformed)?;
        let mismatch = identity.mismatch(server, vapid_public_key.as_deref());
        if let Some(why) = mismatch {
            return Err(ToolError::Unusable(format!("{}: {why}", path.display())));
        }
        identity.server = Some(server.clone());
        Ok(identity)
    }

    /// Why it does not belong to that server and that VAPID key.
    fn mismatch(&self, server: &Url, vapid_public_key: Option<&str>) -> Option<String> {
        if let Some(own) = self.server.as_ref().filter(|own| *own != server) {
            return Some(format!(
                "it is an agent of {own} and not of {server}; name another file (or, if that is \
                 the same server with a new URL, change `server` in this one)"
            ));
        }
        if vapid_public_key.is_some() && vapid_public_key != self.vapid_public_key.as_deref() {
            let why = "it is subscribed with another VAPID key; name another file, or leave out \
                       --vapid-public-key";
            return Some(why.into());
        }
        None
    }

    /// Writes a file that only its owner may read.
    pub fn save(&self, path: &Path) -> Result<(), ToolError> {
        write_private(path, &self.to_json())
    }

    /// Takes a new id of the server; the subscription is lost.
    pub fn start_over(&mut self, uaid: String) {
        self.uaid = Some(uaid);
        self.channel = channel();
        self.endpoint = None;
    }

    /// What application servers need, once there is an endpoint.
    pub fn subscription(&self) -> Option<Subscription> {
        let keys = Keys { p256dh: *self.pair.public(), auth: self.auth };
        self.endpoint.clone().map(|endpoint| Subscription { endpoint, keys })
    }

    fn from_json(text: &str) -> Result<Self, String> {
        let json: Json = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let private = from_base64url(&json.private_key);
        let pair = private.and_then(|bytes| KeyPair::from_bytes(&bytes));
        let auth = from_base64url(&json.auth).and_then(|bytes| bytes.try_into().ok());
        Ok(Self {
            server: json.server,
            uaid: json.uaid,
            channel: json.channel,
            endpoint: json.endpoint,
            vapid_public_key: json.vapid_public_key,
            pair: pair.ok_or("private_key is not a P-256 private key")?,
            auth: auth.ok_or("auth is not 16 bytes")?,
        })
    }

    fn to_json(&self) -> String {
        let json = Json {
            server: self.server.clone(),
            uaid: self.uaid.clone(),
            channel: self.channel.clone(),
            endpoint: self.endpoint.clone(),
            vapid_public_key: self.vapid_public_key.clone(),
            private_key: to_base64url(&self.pair.private_bytes()),
            auth: to_base64url(&self.auth),
        };
        serde_json::to_string_pretty(&json).expect("texts can be written as JSON") + "\n"
    }
}

/// A new channel id, a UUID as in Firefox.
fn channel() -> String {
    Uuid::new_v4().to_string()
}

/// Parses a VAPID public key, and returns the form in which keys are compared.
pub fn vapid_public_key(text: &str) -> Result<String, String> {
    let bytes = from_base64url(text).filter(|bytes| is_public(bytes));
    let bytes = bytes.ok_or("expected a P-256 public key: 65 bytes in base64url")?;
    Ok(to_base64url(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Url {
        Url::parse("ws://127.0.0.1:8080/").unwrap()
    }

    #[test]
    fn an_identity_is_kept_in_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        let mut new = Identity::load_or_generate(&path, &server(), None).unwrap();
        new.start_over("0123".into());
        new.endpoint = Some(Url::parse("http://a/b").unwrap());
        new.save(&path).unwrap();

        let kept = Identity::load_or_generate(&path, &server(), None).unwrap();
        assert_eq!(kept.to_json(), new.to_json());
        assert_eq!(kept.subscription(), new.subscription());
        assert!(kept.subscription().is_some());
    }

    #[test]
    fn a_file_for_another_vapid_key_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        Identity::generate(&server(), Some("one".into())).save(&path).unwrap();
        assert!(Identity::load_or_generate(&path, &server(), None).is_ok());
        assert!(Identity::load_or_generate(&path, &server(), Some("one".into())).is_ok());
        let error = Identity::load_or_generate(&path, &server(), Some("two".into()))
            .unwrap_err()
            .to_string();
        assert!(error.contains("subscribed with another VAPID key"), "{error}");
    }

    #[test]
    fn a_file_for_another_server_is_refused_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        Identity::generate(&server(), None).save(&path).unwrap();
        let before = std::fs::read_to_string(&path).unwrap();
        let other = Url::parse("wss://push.example.net/").unwrap();
        let error = Identity::load_or_generate(&path, &other, None).unwrap_err().to_string();
        let expected = "it is an agent of ws://127.0.0.1:8080/ and not of wss://push.example.net/";
        assert!(error.contains(expected), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), before);
    }

    #[test]
    fn a_file_without_a_server_is_accepted_and_names_it_from_then_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        let old = Identity::generate(&server(), None).to_json();
        let mut old: serde_json::Value = serde_json::from_str(&old).unwrap();
        old.as_object_mut().unwrap().remove("server").unwrap();
        std::fs::write(&path, old.to_string()).unwrap();
        Identity::load_or_generate(&path, &server(), None).unwrap().save(&path).unwrap();
        let other = Url::parse("wss://push.example.net/").unwrap();
        assert!(Identity::load_or_generate(&path, &other, None).is_err());
    }

    #[test]
    fn a_damaged_file_is_refused_and_kept() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "{}").unwrap();
        let error =
            Identity::load_or_generate(file.path(), &server(), None).unwrap_err().to_string();
        assert!(error.contains("is not a user agent's state: missing field"), "{error}");
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "{}");
    }

    #[test]
    fn a_vapid_public_key_is_read_with_padding_and_written_without() {
        let text = to_base64url(KeyPair::generate().public());
        assert_eq!(vapid_public_key(&format!("{text}=")), Ok(text));
        assert!(vapid_public_key("BCVx").is_err());
    }
}
