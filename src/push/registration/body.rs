//! The fields of a request's body. A field that is `null` is missing, and unknown fields are ignored.

use serde_json::{Map, Value};
use state_machine::wire::VapidKey;
use state_machine::{BridgeName, Chid};
use uuid::Uuid;

use super::error::{APS_BYTES_MAX, RegistrationError, TOKEN_CHARS_MAX, TOKEN_CHARS_MIN};

/// Maximum size of a body.
pub(super) const BODY_BYTES_MAX: usize = 8192;

/// The body of a request.
pub(super) struct Fields(Map<String, Value>);

impl Fields {
    /// Parses a body. An empty one has no fields.
    pub(super) fn parse(body: &[u8]) -> Result<Self, RegistrationError> {
        if body.is_empty() {
            return Ok(Self(Map::new()));
        }
        serde_json::from_slice(body).map(Self).map_err(|_| RegistrationError::Body)
    }

    /// The token of the agent, which must be there.
    pub(super) fn token(&self) -> Result<Box<str>, RegistrationError> {
        let token = self.get("token").and_then(Value::as_str);
        let is_token = |token: &&str| {
            (TOKEN_CHARS_MIN..=TOKEN_CHARS_MAX).contains(&token.len())
                && token.bytes().all(|byte| byte.is_ascii_graphic())
        };
        token.filter(is_token).map(Into::into).ok_or(RegistrationError::Token)
    }

    /// The channel that the agent names; a new one if it names none.
    pub(super) fn channel(&self) -> Result<Chid, RegistrationError> {
        let Some(value) = self.get("channelID") else {
            return Ok(Chid(Uuid::new_v4().into_bytes()));
        };
        value.as_str().and_then(chid).ok_or(RegistrationError::ChannelId)
    }

    /// The VAPID key that alone may push to the channel, if there is one.
    pub(super) fn key(&self) -> Result<Option<VapidKey>, RegistrationError> {
        let parse = |value: &Value| {
            let key = VapidKey::parse(value.as_str()?)?;
            key.is_on_curve().then_some(key)
        };
        self.get("key").map(|value| parse(value).ok_or(RegistrationError::Key)).transpose()
    }

    /// The `aps` dictionary of an agent of APNs: an object as for the Python autopush, or its JSON as for autopush-rs.
    pub(super) fn aps(&self, bridge: BridgeName) -> Result<Option<Box<str>>, RegistrationError> {
        let value = match bridge {
            BridgeName::Apns => self.get("aps"),
            BridgeName::Fcm => None,
        };
        let json = |value: &Value| {
            let object: Map<_, _> = match value {
                Value::String(text) => serde_json::from_str(text).ok()?,
                value => value.as_object()?.clone(),
            };
            let json = Value::Object(object).to_string();
            (json.len() <= APS_BYTES_MAX).then(|| json.into_boxed_str())
        };
        value.map(|value| json(value).ok_or(RegistrationError::Aps)).transpose()
    }

    fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }
}

/// Parses 32 hex digits or a dashed UUID, in either case: clients write channel ids in both forms.
pub(super) fn chid(text: &str) -> Option<Chid> {
    let uuid = Uuid::try_parse(text).ok().filter(|_| matches!(text.len(), 32 | 36))?;
    Some(Chid(uuid.into_bytes()))
}
