//! The argument of `kalends inspect`: an endpoint, a message URL or a uaid.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use state_machine::{Chid, MessageId, Uaid};
use url::Url;

use super::facts::EndpointFacts;
use crate::command::text::hex;
use crate::push::endpoint_token::{EndpointTokens, TokenError, TokenVersion};
use crate::push::message_url::MessageUrls;
use crate::settings::keys::KeyList;
use crate::settings::keys::{Keys, KeysError};

/// The argument as it was written. A secret: it may be an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// None of a path without a host, and of a uaid.
    origin: Option<String>,
    part: Part,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Agent(Uaid),
    Endpoint(TokenVersion, String),
    Message(String),
}

/// What the argument names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subject {
    pub uaid: Uaid,
    pub endpoint: Option<EndpointFacts>,
    /// Id and channel of a message.
    pub message: Option<(String, String)>,
}

/// Why the argument names nothing.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    #[error(
        "the endpoint was made with a key that this server does not have, or is not complete: compare it with the one \
         that the application server uses; if it is of this installation, put the key it was made with back into \
         crypto_keys in keys.toml; pushes to it are answered 404"
    )]
    ForeignEndpoint,
    #[error(
        "the endpoint is of an earlier version and can be opened with its VAPID key only: inspect the uaid instead"
    )]
    NeedsKey,
    #[error(
        "the message URL was made with a key that this server does not have, or is not complete: compare it with the \
         Location of the push"
    )]
    ForeignMessage,
    #[error(transparent)]
    Keys(#[from] KeysError),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(uaid) = Uaid::parse(text) {
            return Ok(Self { origin: None, part: Part::Agent(uaid) });
        }
        let url = Url::parse(text).ok();
        let origin = url.as_ref().map(|url| url.origin().ascii_serialization());
        let path = url.as_ref().map_or(text, Url::path);
        let endpoint = || TokenVersion::in_path(path).filter(|(_, token)| !token.is_empty());
        let part = match path.strip_prefix("/m/").filter(|id| !id.is_empty()) {
            Some(id) => Some(Part::Message(id.to_owned())),
            None => endpoint().map(|(version, token)| Part::Endpoint(version, token.to_owned())),
        };
        let part = part.ok_or(
            "expected an endpoint (https://HOST/wpush/...), a message URL (https://HOST/m/...) or a uaid of 32 hex \
             digits",
        )?;
        Ok(Self { origin, part })
    }
}

impl Target {
    /// Decodes it with these keys. A uaid needs none.
    pub fn decode(
        &self,
        keys: impl FnOnce() -> Result<Keys, KeysError>,
    ) -> Result<Subject, TargetError> {
        match &self.part {
            Part::Agent(uaid) => Ok(Subject { uaid: *uaid, endpoint: None, message: None }),
            Part::Endpoint(version, token) => self.open(*version, token, &keys()?),
            Part::Message(id) => {
                let opened = MessageUrls::new(&keys()?).decrypt(id);
                let (uaid, message) = opened.ok_or(TargetError::ForeignMessage)?;
                let message = Some((message.id.to_string(), message.chid.to_string()));
                Ok(Subject { uaid, endpoint: None, message })
            }
        }
    }

    fn open(
        &self,
        version: TokenVersion,
        token: &str,
        keys: &Keys,
    ) -> Result<Subject, TargetError> {
        for (key, place) in keys.crypto_keys().iter().zip(1..) {
            let alone = Keys::from_texts(&[key.to_text().as_str()]);
            let alone = alone.expect("a key is read from its own text");
            match EndpointTokens::new(&alone).inspect(version, token) {
                Ok((opened, restricted_to)) => {
                    let fingerprint = KeyList::Crypto.fingerprints(&alone).pop_first();
                    let endpoint = EndpointFacts {
                        kind: version.name().to_owned(),
                        channel: opened.chid.to_string(),
                        restricted_to: restricted_to.map(hex),
                        crypto_key: place,
                        crypto_key_fingerprint: fingerprint.unwrap_or_default(),
                        origin: self.origin.clone(),
                        other_origin: None,
                    };
                    return Ok(Subject {
                        uaid: opened.uaid,
                        endpoint: Some(endpoint),
                        message: None,
                    });
                }
                Err(TokenError::KeyNeeded) => return Err(TargetError::NeedsKey),
                Err(TokenError::Unknown | TokenError::OtherKey) => {}
            }
        }
        Err(TargetError::ForeignEndpoint)
    }
}

impl Subject {
    /// The channel of the endpoint or message.
    pub fn chid(&self) -> Option<Chid> {
        let of_message = self.message.as_ref().map(|(_, channel)| channel);
        let channel = self.endpoint.as_ref().map(|endpoint| &endpoint.channel).or(of_message)?;
        Chid::parse(channel).ok()
    }

    pub fn message_id(&self) -> Option<MessageId> {
        MessageId::parse(&self.message.as_ref()?.0).ok()
    }
}

#[cfg(test)]
mod tests {
    use state_machine::MessageKey;

    use super::*;

    const UAID: Uaid = Uaid([7; 16]);
    const CHID: Chid = Chid([9; 16]);

    fn keys(letters: &[&str]) -> Keys {
        let texts: Vec<_> = letters.iter().map(|letter| letter.repeat(43)).collect();
        Keys::from_texts(&texts).unwrap()
    }

    fn decode(text: &str, keys: Keys) -> Result<Subject, TargetError> {
        text.parse::<Target>().unwrap().decode(|| Ok(keys))
    }

    #[test]
    fn an_endpoint_shows_its_channel_and_which_key_opened_it() {
        let path = EndpointTokens::new(&keys(&["A"])).encrypt(UAID, CHID, None);
        let subject =
            decode(&format!("https://push.example.net{path}"), keys(&["B", "A"])).unwrap();
        assert_eq!((subject.uaid, subject.chid()), (UAID, Some(CHID)));
        let endpoint = subject.endpoint.unwrap();
        assert_eq!((endpoint.kind.as_str(), endpoint.crypto_key), ("short", 2));
        assert_eq!(endpoint.origin.as_deref(), Some("https://push.example.net"));
        assert!(endpoint.crypto_key_fingerprint.starts_with("crypto:"));
        let foreign = decode(&path, keys(&["B"])).unwrap_err().to_string();
        assert!(foreign.starts_with("the endpoint was made with a key that this server does not"));
    }

    #[test]
    fn a_message_url_and_a_uaid_name_their_agent() {
        let message =
            MessageKey { id: MessageId::from_uuid_v7(1 << 80, false), chid: CHID, topic: None };
        let path = MessageUrls::new(&keys(&["A"])).encrypt(UAID, &message);
        let subject = decode(&path, keys(&["A"])).unwrap();
        assert_eq!((subject.chid(), subject.message_id()), (Some(CHID), Some(message.id)));
        assert!(matches!(decode(&path, keys(&["B"])), Err(TargetError::ForeignMessage)));
        let by_uaid = decode(&UAID.to_string(), keys(&["B"])).unwrap();
        assert_eq!((by_uaid.uaid, by_uaid.chid()), (UAID, None));
    }

    #[test]
    fn other_arguments_are_refused() {
        for wrong in ["", "x", "/wpush/", "https://push.example.net/", "/m/", "/v1/feeds/x"] {
            let refused = wrong.parse::<Target>().unwrap_err();
            assert!(refused.starts_with("expected an endpoint"), "{wrong}: {refused}");
        }
    }
}
