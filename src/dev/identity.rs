//! The state of a user agent: its id, its channel, and the keys of its subscription.

use std::path::Path;

use aws_lc_rs::rand;
use serde::{Deserialize, Serialize};
use url::Url;
use uuid::Uuid;

use super::base64url::{from_base64url, from_json, to_base64url, to_json};
use super::files::{FileError, read_json, write_private};
use super::keypair::{KeyPair, is_public};
use super::subscription::{AUTH_BYTES, Keys, Subscription};

/// A user agent with one channel, and the JSON of its file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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
    #[serde(rename = "private_key", serialize_with = "to_json", deserialize_with = "from_json")]
    pub pair: KeyPair,
    /// The secret that messages are authenticated with.
    #[serde(serialize_with = "to_json", deserialize_with = "from_json")]
    pub auth: [u8; AUTH_BYTES],
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
    ) -> Result<Self, FileError> {
        if !path.exists() {
            return Ok(Self::generate(server, vapid_public_key));
        }
        let mut identity: Self = read_json(path, "a user agent's state")?;
        let foreign = |why: String| FileError::Foreign { path: path.to_owned(), why };
        if let Some(own) = identity.server.filter(|own| own != server) {
            return Err(foreign(format!(
                "it is an agent of {own} and not of {server}; name another file (or, if that is \
                 the same server with a new URL, change `server` in this one)"
            )));
        }
        if vapid_public_key.is_some() && vapid_public_key != identity.vapid_public_key {
            let why = "it is subscribed with another VAPID key; name another file, or leave out \
                       --vapid-public-key";
            return Err(foreign(why.into()));
        }
        identity.server = Some(server.clone());
        Ok(identity)
    }

    /// Writes a file that only its owner may read.
    pub fn save(&self, path: &Path) -> Result<(), FileError> {
        let json = serde_json::to_string_pretty(self).expect("texts can be written as JSON");
        write_private(path, &(json + "\n"))
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
        let json = |identity| serde_json::to_value(identity).unwrap();
        assert_eq!(json(&kept), json(&new));
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
        let mut old = serde_json::to_value(Identity::generate(&server(), None)).unwrap();
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
