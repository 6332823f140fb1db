//! The protocol of a user agent on its WebSocket. No IO and no clock in this file: texts are
//! arguments, texts and events are results.
//!
//! It is written from the description of the protocol and not from the server's code. It is as strict as
//! Firefox: if Firefox would drop the connection, it reports an error.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};
use state_machine::{Encoding, Payload};
use url::Url;

use super::base64url::{from_base64url, to_base64url};
use super::encrypt::decrypt;
use super::identity::Identity;
use super::subscription::Subscription;

/// Versions that are kept to recognise repeated messages.
const REMEMBERED_MAX: usize = 1024;

#[derive(Debug)]
pub struct Agent {
    pub identity: Identity,
    phase: Phase,
    remembered: VecDeque<String>,
    /// The broadcasts that it subscribes to, with the versions it has.
    broadcasts: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    AwaitingHello,
    AwaitingRegister,
    Subscribed,
}

/// The result of a message.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// What happened, for the user.
    pub events: Vec<Event>,
    /// The texts to send.
    pub send: Vec<String>,
}

/// What happened. As JSON, `event` has the name.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The server accepted the agent under this id.
    Connected {
        uaid: String,
    },
    /// The server did not know the agent any more. Its subscription is lost, and a new one is made.
    Forgotten,
    /// Pushes can be sent to this subscription.
    Subscribed {
        subscription: Subscription,
    },
    Message {
        version: String,
        /// The content encoding; none for a push without a body.
        encoding: Option<&'static str>,
        #[serde(flatten, serialize_with = "text_and_base64url")]
        body: Vec<u8>,
    },
    Undecryptable {
        version: String,
        reason: String,
    },
    /// A broadcast and its present version.
    Broadcast {
        id: String,
        version: String,
    },
    /// The server does not send a broadcast, for now or for good.
    BroadcastRefused {
        id: String,
        reason: String,
    },
    /// A message that was received before. It is acked again and not shown again.
    Repeated {
        version: String,
    },
    /// The connection is lost, and the agent connects again after this time.
    Disconnected {
        reason: String,
        retry_ms: u64,
    },
}

/// The JSON of a message: the text if it is UTF-8, and the bytes.
fn text_and_base64url<S: Serializer>(body: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    let text = std::str::from_utf8(body).ok();
    json!({"text": text, "base64url": to_base64url(body)}).serialize(serializer)
}

/// The server violates the protocol, or refuses the agent.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgentError {
    #[error("the server sent something that is not a JSON object: {0}")]
    NotJson(String),
    #[error("the server refused {what} with status {status}{reason}")]
    Refused {
        what: &'static str,
        status: u16,
        /// The server's reason, or nothing.
        reason: String,
    },
    /// A field is missing or invalid.
    #[error("the server's {what} has no usable {field}")]
    Malformed { what: &'static str, field: &'static str },
    /// A message that the agent did not expect in its phase.
    #[error("the server sent {0} out of turn")]
    OutOfTurn(&'static str),
}

/// Any message of the server.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServerMessage {
    message_type: Option<String>,
    status: Option<u16>,
    reason: Option<String>,
    uaid: Option<String>,
    #[serde(rename = "channelID")]
    channel: Option<String>,
    push_endpoint: Option<String>,
    version: Option<String>,
    data: Option<String>,
    headers: Option<Headers>,
    broadcasts: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Headers {
    encoding: Option<String>,
    encryption: Option<String>,
    crypto_key: Option<String>,
}

/// The codes of an ack.
const DELIVERED: u16 = 100;
const NOT_DECRYPTED: u16 = 101;
const NOT_DELIVERED: u16 = 102;

impl Agent {
    pub fn new(identity: Identity) -> Self {
        let (remembered, broadcasts) = (VecDeque::new(), BTreeMap::new());
        Self { identity, phase: Phase::AwaitingHello, remembered, broadcasts }
    }

    /// Subscribes to broadcasts too, of which the agent has no version.
    pub fn with_broadcasts(mut self, ids: &[String]) -> Self {
        self.broadcasts.extend(ids.iter().map(|id| (id.clone(), String::new())));
        self
    }

    /// The first text of a new connection.
    pub fn hello(&mut self) -> String {
        self.phase = Phase::AwaitingHello;
        let mut hello = json!({
            "messageType": "hello", "use_webpush": true, "broadcasts": self.broadcasts,
        });
        if let Some(uaid) = &self.identity.uaid {
            hello["uaid"] = json!(uaid);
        }
        hello.to_string()
    }

    /// Whether the server still has to answer.
    pub fn is_waiting(&self) -> bool {
        self.phase != Phase::Subscribed
    }

    /// Handles a text of the server.
    pub fn on_message(&mut self, text: &str) -> Result<Step, AgentError> {
        let message: ServerMessage =
            serde_json::from_str(text).map_err(|error| AgentError::NotJson(error.to_string()))?;
        match message.message_type.as_deref() {
            Some("hello") => self.on_hello(message),
            Some("register") => self.on_register(message),
            Some("notification") => self.on_notification(&message),
            Some("broadcast") => {
                Ok(Step { events: self.on_broadcasts(&message), send: Vec::new() })
            }
            // The answer to a ping, and messages of later servers.
            None | Some(_) => Ok(Step::default()),
        }
    }

    fn on_hello(&mut self, message: ServerMessage) -> Result<Step, AgentError> {
        if self.phase != Phase::AwaitingHello {
            return Err(AgentError::OutOfTurn("hello"));
        }
        check_status("hello", &message)?;
        let news = self.on_broadcasts(&message);
        let uaid = message.uaid.filter(|uaid| (1..=128).contains(&uaid.len()));
        let uaid = uaid.ok_or(AgentError::Malformed { what: "hello", field: "uaid" })?;
        let mut step = Step::default();
        step.events.push(Event::Connected { uaid: uaid.clone() });
        if self.identity.uaid.as_ref() != Some(&uaid) {
            if self.identity.endpoint.is_some() {
                step.events.push(Event::Forgotten);
            }
            self.identity.start_over(uaid);
        }
        step.events.extend(news);
        match self.identity.subscription() {
            Some(subscription) => {
                self.phase = Phase::Subscribed;
                step.events.push(Event::Subscribed { subscription });
            }
            None => {
                self.phase = Phase::AwaitingRegister;
                let channel = &self.identity.channel;
                let mut register = json!({"messageType": "register", "channelID": channel});
                if let Some(key) = &self.identity.vapid_public_key {
                    register["key"] = json!(key);
                }
                step.send.push(register.to_string());
            }
        }
        Ok(step)
    }

    /// The versions by id, and under `errors` the reasons of refusals.
    fn on_broadcasts(&mut self, message: &ServerMessage) -> Vec<Event> {
        let sent = message.broadcasts.as_ref().and_then(Value::as_object).into_iter().flatten();
        let mut events = Vec::new();
        for (id, version) in sent {
            if let Some(version) = version.as_str() {
                let (id, version) = (id.clone(), version.to_owned());
                self.broadcasts.insert(id.clone(), version.clone());
                events.push(Event::Broadcast { id, version });
            }
            for (id, reason) in version.as_object().into_iter().flatten() {
                let (id, reason) = (id.clone(), reason.as_str().unwrap_or_default().to_owned());
                events.push(Event::BroadcastRefused { id, reason });
            }
        }
        events
    }

    fn on_register(&mut self, message: ServerMessage) -> Result<Step, AgentError> {
        if self.phase != Phase::AwaitingRegister {
            return Err(AgentError::OutOfTurn("register"));
        }
        check_status("register", &message)?;
        let malformed = |field| AgentError::Malformed { what: "register", field };
        if message.channel.as_ref() != Some(&self.identity.channel) {
            return Err(malformed("channelID"));
        }
        let endpoint = message.push_endpoint.and_then(|text| Url::parse(&text).ok());
        self.identity.endpoint = Some(endpoint.ok_or(malformed("pushEndpoint"))?);
        self.phase = Phase::Subscribed;
        let subscription = self.identity.subscription();
        let events = subscription.map(|subscription| Event::Subscribed { subscription });
        Ok(Step { events: events.into_iter().collect(), send: Vec::new() })
    }

    fn on_notification(&mut self, message: &ServerMessage) -> Result<Step, AgentError> {
        if self.phase == Phase::AwaitingHello {
            return Err(AgentError::OutOfTurn("notification"));
        }
        let malformed = |field| AgentError::Malformed { what: "notification", field };
        let channel = message.channel.clone().ok_or(malformed("channelID"))?;
        let version = message.version.clone().ok_or(malformed("version"))?;
        let (event, code) = if self.remembered.contains(&version) {
            (Event::Repeated { version: version.clone() }, NOT_DELIVERED)
        } else {
            let received = self.receive(&channel, version.clone(), message)?;
            self.remember(version.clone());
            received
        };
        let update = json!({"channelID": channel, "version": version, "code": code});
        let ack = json!({"messageType": "ack", "updates": [update]}).to_string();
        Ok(Step { events: vec![event], send: vec![ack] })
    }

    fn receive(
        &self,
        channel: &str,
        version: String,
        message: &ServerMessage,
    ) -> Result<(Event, u16), AgentError> {
        if channel != self.identity.channel {
            let reason = format!("it is for channel {channel}, which is not the agent's");
            return Ok((Event::Undecryptable { version, reason }, NOT_DELIVERED));
        }
        let Some(payload) = payload(message)? else {
            let (encoding, body) = (None, Vec::new());
            return Ok((Event::Message { version, encoding, body }, DELIVERED));
        };
        let encoding = Some(match payload.encoding {
            Encoding::Aes128Gcm => "aes128gcm",
            Encoding::AesGcm { .. } => "aesgcm",
            Encoding::Plain => "plain",
        });
        Ok(match decrypt(&self.identity.pair, &self.identity.auth, &payload) {
            Ok(body) => (Event::Message { version, encoding, body }, DELIVERED),
            Err(error) => {
                (Event::Undecryptable { version, reason: error.to_string() }, NOT_DECRYPTED)
            }
        })
    }

    fn remember(&mut self, version: String) {
        if self.remembered.len() == REMEMBERED_MAX {
            self.remembered.pop_front();
        }
        self.remembered.push_back(version);
    }
}

fn check_status(what: &'static str, message: &ServerMessage) -> Result<(), AgentError> {
    match message.status {
        Some(200) => Ok(()),
        Some(status) => {
            let reason = message.reason.as_ref().map(|reason| format!(": {reason}"));
            Err(AgentError::Refused { what, status, reason: reason.unwrap_or_default() })
        }
        None => Err(AgentError::Malformed { what, field: "status" }),
    }
}

/// The encrypted body: `data` and `headers` are both present or both missing.
fn payload(message: &ServerMessage) -> Result<Option<Payload>, AgentError> {
    let malformed = |field| AgentError::Malformed { what: "notification", field };
    let (data, headers) = match (&message.data, &message.headers) {
        (None, None) => return Ok(None),
        (Some(data), Some(headers)) => (data, headers),
        (Some(_), None) => return Err(malformed("headers")),
        (None, Some(_)) => return Err(malformed("data")),
    };
    // Firefox never acks data that is padded or not base64url.
    let data = from_base64url(data).filter(|_| !data.ends_with('='));
    let data = Bytes::from(data.ok_or(malformed("data"))?);
    let encoding = encoding(headers).ok_or(malformed("headers"))?;
    Ok(Some(Payload { data, encoding }))
}

fn encoding(headers: &Headers) -> Option<Encoding> {
    match headers.encoding.as_deref()? {
        "aes128gcm" => Some(Encoding::Aes128Gcm),
        "aesgcm" => Some(Encoding::AesGcm {
            encryption: headers.encryption.as_deref()?.into(),
            crypto_key: headers.crypto_key.as_deref()?.into(),
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
