//! Frames for a user agent.

use std::fmt::Write;

use base64::Engine;
use serde::Serialize;

use super::key::{BASE64, VapidKey};
use super::status;
use crate::broadcast::{BroadcastUpdate, RESERVED_ID};
use crate::ids::{Chid, Uaid};
use crate::message::{Encoding, Message, Payload};

/// A message of the server to a user agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ServerMessage {
    /// Answers `hello`. The agent keeps this uaid.
    Hello {
        /// The agent's uaid: the one it sent, or a new one.
        uaid: Uaid,
        /// The answer about the broadcasts in its `hello`.
        broadcasts: BroadcastUpdate,
    },
    /// Answers `hello` of an agent of SimplePush.
    SimplePushHello { uaid: Uaid },
    /// Answers `register` with the channel's endpoint.
    Registered {
        /// The agent, for its endpoint URL.
        uaid: Uaid,
        chid: Chid,
        /// The VAPID key that the endpoint is restricted to, if any.
        key: Option<VapidKey>,
    },
    /// Answers `register`: the channel is not registered.
    RegisterRefused {
        chid: Chid,
        /// A constant of [`status`].
        status: u16,
        /// The cause, for the developer of the agent.
        reason: &'static str,
    },
    /// Answers `unregister`: the channel is no longer registered.
    Unregistered {
        chid: Chid,
        /// A constant of [`status`].
        status: u16,
    },
    /// Delivers a push message.
    Notification(Message),
    /// New versions of broadcasts, and subscriptions that were refused.
    Broadcast(BroadcastUpdate),
    /// `{}`, the answer to a ping.
    Pong,
    /// Answers `urgency` with a status.
    UrgencySet {
        /// A constant of [`status`].
        status: u16,
    },
    /// Answers an invalid message.
    Error {
        /// The `messageType` of the invalid message.
        message_type: Box<str>,
        /// The `channelID` of the invalid message, if it has one.
        channel_id: Option<Box<str>>,
        /// A constant of [`status`].
        status: u16,
        /// The cause, for the developer of the agent.
        reason: &'static str,
    },
}

/// Builds the URL that application servers push to. Its token is encrypted with the server's keys,
/// which this crate does not have.
pub trait EndpointUrls {
    /// The endpoint of a channel, restricted to `key` if there is one.
    fn endpoint(&self, uaid: Uaid, chid: Chid, key: Option<&VapidKey>) -> String;
}

impl ServerMessage {
    /// The JSON text of the frame.
    pub fn to_json(&self, urls: &dyn EndpointUrls) -> String {
        match self {
            Self::Notification(message) => match message.version() {
                None => notification(message),
                Some(version) => update(message, version),
            },
            Self::Pong => "{}".to_owned(),
            Self::Hello { uaid, broadcasts } => format!(
                r#"{{"messageType":"hello","uaid":"{uaid}","status":200,"use_webpush":true,"urgency":true,"broadcasts":{}}}"#,
                news(broadcasts)
            ),
            Self::SimplePushHello { uaid } => {
                format!(r#"{{"messageType":"hello","uaid":"{uaid}","status":200}}"#)
            }
            Self::Broadcast(broadcasts) => {
                format!(r#"{{"messageType":"broadcast","broadcasts":{}}}"#, news(broadcasts))
            }
            Self::Registered { uaid, chid, key } => {
                let url = quoted(&urls.endpoint(*uaid, *chid, key.as_ref()));
                format!(
                    r#"{{"messageType":"register","channelID":"{chid}","status":200,"pushEndpoint":{url}}}"#
                )
            }
            Self::RegisterRefused { chid, status, reason } => {
                let channel_id = Some(chid.to_string());
                error("register", channel_id.as_deref(), *status, reason)
            }
            Self::Unregistered { chid, status } => {
                format!(r#"{{"messageType":"unregister","channelID":"{chid}","status":{status}}}"#)
            }
            Self::UrgencySet { status } => {
                format!(r#"{{"messageType":"urgency","status":{status}}}"#)
            }
            Self::Error { message_type, channel_id, status, reason } => {
                error(message_type, channel_id.as_deref(), *status, reason)
            }
        }
    }
}

/// A refused register has an empty `pushEndpoint` unless a retry may succeed. Sunup registers again without end if the
/// field is missing.
fn error(message_type: &str, channel_id: Option<&str>, status: u16, reason: &str) -> String {
    #[derive(Serialize)]
    struct Body<'a> {
        #[serde(rename = "messageType")]
        message_type: &'a str,
        #[serde(rename = "channelID", skip_serializing_if = "Option::is_none")]
        channel_id: Option<&'a str>,
        status: u16,
        #[serde(rename = "pushEndpoint", skip_serializing_if = "Option::is_none")]
        push_endpoint: Option<&'a str>,
        reason: &'a str,
    }
    let may_retry = matches!(status, status::OVER_LIMIT | status::UNAVAILABLE);
    let is_final = message_type == "register" && !may_retry;
    let push_endpoint = is_final.then_some("");
    let body = Body { message_type, channel_id, status, push_endpoint, reason };
    serde_json::to_string(&body).expect("texts and numbers always serialise")
}

/// The versions by broadcast id, with the refused ids under [`RESERVED_ID`].
fn news(BroadcastUpdate { versions, refused }: &BroadcastUpdate) -> String {
    let entry = |id: &str, text: &str| format!("{}:{}", quoted(id), quoted(text));
    let mut entries: Vec<String> =
        versions.iter().map(|(id, version)| entry(id.as_str(), version.as_str())).collect();
    if !refused.is_empty() {
        let errors = refused.iter().map(|(id, refusal)| entry(id.as_str(), refusal.reason()));
        let errors: Vec<String> = errors.collect();
        entries.push(format!("{}:{{{}}}", quoted(RESERVED_ID), errors.join(",")));
    }
    format!("{{{}}}", entries.join(","))
}

/// Writes into one string of the right capacity: this is the most frequent frame.
fn notification(message: &Message) -> String {
    const AROUND_DATA: usize = 192;
    let data_len = message.payload.as_ref().map_or(0, |payload| payload.data.len());
    let mut json = String::with_capacity(AROUND_DATA + data_len * 4 / 3);
    json.push_str(r#"{"messageType":"notification","channelID":""#);
    let _ = write!(json, r#"{}","version":"{}""#, message.chid, message.id);
    if let Some(payload) = &message.payload {
        write_payload(&mut json, payload);
    }
    json.push('}');
    json
}

/// The notification of SimplePush. Data that is no UTF-8 was sent as such, and each wrong byte becomes U+FFFD.
fn update(message: &Message, version: u64) -> String {
    let data = message
        .payload
        .as_ref()
        .map(|payload| format!(r#","data":{}"#, quoted(&String::from_utf8_lossy(&payload.data))));
    let (chid, data) = (message.chid, data.unwrap_or_default());
    format!(
        r#"{{"messageType":"notification","updates":[{{"channelID":"{chid}","version":{version}{data}}}]}}"#
    )
}

/// Appends a payload to a JSON object as the fields `data` and `headers`.
pub fn write_payload(json: &mut String, payload: &Payload) {
    json.push_str(r#","data":""#);
    BASE64.encode_string(&payload.data, json);
    json.push_str(r#"","headers":{"encoding":"#);
    match &payload.encoding {
        Encoding::Aes128Gcm => json.push_str(r#""aes128gcm""#),
        Encoding::Plain => json.push_str(r#""plain""#),
        Encoding::AesGcm { encryption, crypto_key } => {
            json.push_str(r#""aesgcm","encryption":"#);
            json.push_str(&quoted(encryption));
            json.push_str(r#","crypto_key":"#);
            json.push_str(&quoted(crypto_key));
        }
    }
    json.push('}');
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a text always serialises")
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::{Value, json};

    use super::*;
    use crate::broadcast::BroadcastRefusal;
    use crate::feed::{FeedKey, FeedValue};
    use crate::ids::MessageId;
    use crate::time::{Span, Time};

    struct Urls;

    impl EndpointUrls for Urls {
        fn endpoint(&self, uaid: Uaid, chid: Chid, _: Option<&VapidKey>) -> String {
            format!("https://push.test/\"{uaid}/{chid}")
        }
    }

    fn json_of(message: &ServerMessage) -> Value {
        serde_json::from_str(&message.to_json(&Urls)).unwrap()
    }

    fn message(payload: Option<Payload>) -> ServerMessage {
        let id = MessageId::from_uuid_v7(0xABCD0, false);
        let ttl = Span::from_secs(60);
        let message = Message::new(id, Chid([1; 16]), Time(0), ttl);
        ServerMessage::Notification(Message { payload, ..message })
    }

    #[test]
    fn a_notification_without_payload_has_neither_data_nor_headers() {
        let expected = json!({
            "messageType": "notification",
            "channelID": "01010101-0101-0101-0101-010101010101",
            "version": "000000000000000000000000000abcd0",
        });
        assert_eq!(json_of(&message(None)), expected);
    }

    #[test]
    fn a_version_of_simplepush_is_an_update() {
        let chid = Chid([1; 16]);
        let updates = |data: Option<&'static str>| {
            let message = Message::of_version(chid, u64::MAX, data.map(Bytes::from), Time(0));
            json_of(&ServerMessage::Notification(message))["updates"].clone()
        };
        let update = json!({"channelID": chid.to_string(), "version": u64::MAX});
        assert_eq!(updates(None), json!([update]));
        let mut with_data = update;
        with_data["data"] = "a \"quote\" \u{e4}".into();
        assert_eq!(updates(Some("a \"quote\" \u{e4}")), json!([with_data]));
        let hello = json_of(&ServerMessage::SimplePushHello { uaid: Uaid([2; 16]) });
        let expected =
            json!({"messageType": "hello", "uaid": Uaid([2; 16]).to_string(), "status": 200});
        assert_eq!(hello, expected);
    }

    #[test]
    fn data_is_unpadded_url_safe_base64() {
        let payload =
            Payload { data: Bytes::from_static(&[0xFB, 0xFF]), encoding: Encoding::Aes128Gcm };
        let json = json_of(&message(Some(payload)));
        assert_eq!(json["data"], "-_8");
        assert_eq!(json["headers"], json!({"encoding": "aes128gcm"}));
    }

    #[test]
    fn headers_of_the_old_encoding_are_handed_on_escaped() {
        let encoding =
            Encoding::AesGcm { encryption: r#"salt="a\b""#.into(), crypto_key: "dh=BP".into() };
        let json = json_of(&message(Some(Payload { data: Bytes::new(), encoding })));
        let expected =
            json!({"encoding": "aesgcm", "encryption": r#"salt="a\b""#, "crypto_key": "dh=BP"});
        assert_eq!(json["headers"], expected);
    }

    #[test]
    fn broadcasts_are_sent_by_id_and_refusals_under_errors() {
        let id = |text| FeedKey::parse(text).unwrap();
        let versions = [(id("a\"b"), FeedValue::parse("\"1\"").unwrap())].into();
        let mut news = BroadcastUpdate { versions, ..BroadcastUpdate::default() };
        let told = json_of(&ServerMessage::Broadcast(news.clone()));
        let expected = json!({"messageType": "broadcast", "broadcasts": {"a\"b": "\"1\""}});
        assert_eq!(told, expected);
        news.refused =
            [(id("c"), BroadcastRefusal::NotFound), (id("d"), BroadcastRefusal::TooMany)].into();
        let hello = ServerMessage::Hello { uaid: Uaid([2; 16]), broadcasts: news };
        let errors = json!({"c": "Broadcast not found", "d": "too many broadcasts"});
        let expected = json!({"a\"b": "\"1\"", "errors": errors});
        assert_eq!(json_of(&hello)["broadcasts"], expected);
    }

    #[test]
    fn the_other_answers_have_the_fields_firefox_reads() {
        let (uaid, chid) = (Uaid([2; 16]), Chid([1; 16]));
        let hello = json_of(&ServerMessage::Hello { uaid, broadcasts: BroadcastUpdate::default() });
        assert_eq!(
            hello,
            json!({"messageType": "hello", "uaid": uaid.to_string(), "status": 200, "use_webpush": true, "urgency": true, "broadcasts": {}})
        );
        let registered = json_of(&ServerMessage::Registered { uaid, chid, key: None });
        assert_eq!(registered["status"], 200);
        assert_eq!(registered["pushEndpoint"], Urls.endpoint(uaid, chid, None));
        let unregistered = json_of(&ServerMessage::Unregistered { chid, status: status::OK });
        assert_eq!(
            unregistered,
            json!({"messageType": "unregister", "channelID": chid.to_string(), "status": 200})
        );
        let error = ServerMessage::Error {
            message_type: "a\"b".into(),
            channel_id: None,
            status: status::INVALID,
            reason: "why",
        };
        assert_eq!(json_of(&error), json!({"messageType": "a\"b", "status": 401, "reason": "why"}));
        assert_eq!(json_of(&ServerMessage::Pong), json!({}));
    }

    #[test]
    fn a_refused_register_has_an_empty_endpoint_unless_a_retry_may_succeed() {
        let endpoint = |message: ServerMessage| json_of(&message).get("pushEndpoint").cloned();
        let refused =
            |status| ServerMessage::RegisterRefused { chid: Chid([1; 16]), status, reason: "why" };
        let invalid = |message_type: &str, status| ServerMessage::Error {
            message_type: message_type.into(),
            channel_id: None,
            status,
            reason: "why",
        };
        assert_eq!(endpoint(refused(status::TOO_MANY)), Some(json!("")));
        assert_eq!(endpoint(refused(status::UNAVAILABLE)), None);
        assert_eq!(endpoint(refused(status::OVER_LIMIT)), None);
        assert_eq!(endpoint(invalid("register", status::INVALID_KEY)), Some(json!("")));
        assert_eq!(endpoint(invalid("register", status::INVALID)), Some(json!("")));
        assert_eq!(endpoint(invalid("unregister", status::INVALID)), None);
    }
}
