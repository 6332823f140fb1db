//! Firebase Cloud Messaging, HTTP v1. A message enters, and a request with the access token of `oauth` leaves.

mod oauth;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Request, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use state_machine::{BridgeOutcome, BridgeRecipient, Message, Span, Urgency};

use self::oauth::{AccessTokens, ServiceAccount};
use super::config::{Opening, Section};
use super::http_client::{HttpAnswer, HttpClient, HttpRequest};
use super::message_data::MessageData;
use super::platform::{Platform, Verdict};

const BASE_URL: &str = "https://fcm.googleapis.com";

/// Maximum size of the names and values of `data`.
const DATA_BYTES_MAX: usize = 4096;

/// Maximum TTL, four weeks.
const TTL_MAX: Span = Span::from_secs(28 * 24 * 60 * 60);

/// The keys of an application in the file of bridges.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The JSON file that the Firebase console issues.
    service_account: String,
    base_url: Option<String>,
}

struct Fcm {
    client: HttpClient,
    /// The URL that messages are sent to.
    url: String,
    tokens: AccessTokens,
}

pub(super) fn open(section: &Section<'_>) -> Opening {
    let config: Config = section.read()?;
    let base_url = section.base_url(config.base_url.as_deref(), BASE_URL)?;
    let (path, text) = section.secret("service_account", &config.service_account)?;
    let account = ServiceAccount::read(&path, &text)?;
    let url = format!("{base_url}/v1/projects/{}/messages:send", account.project_id);
    let client = HttpClient::new(section.tls().with_no_client_auth(), section.wait);
    let tokens = AccessTokens::new(account, section.wait / 2, section.clock.clone());
    Ok(Box::new(Fcm { client, url, tokens }))
}

impl Platform for Fcm {
    fn request(
        &self,
        recipient: &BridgeRecipient,
        message: &Message,
    ) -> Result<HttpRequest, BridgeOutcome> {
        let data = MessageData::of(message);
        if data.len() > DATA_BYTES_MAX {
            return Err(BridgeOutcome::TooLarge { max_bytes: DATA_BYTES_MAX });
        }
        let request = Request::post(&self.url).header(CONTENT_TYPE, "application/json");
        let request = request.body(Full::new(body(recipient, message, &data)));
        Ok(request.expect("the URL was read at the start"))
    }

    fn authorization(&self) -> BoxFuture<'_, Result<Option<HeaderValue>, Verdict>> {
        self.tokens.get(&self.client).map(|token| token.map(Some)).boxed()
    }

    fn drop_token(&self, refused: &HeaderValue) -> bool {
        self.tokens.drop(refused);
        true
    }

    fn read(&self, answer: &HttpAnswer) -> Verdict {
        if answer.status == StatusCode::OK {
            return Verdict::new(BridgeOutcome::Accepted, "");
        }
        let refusal = Refusal::read(answer);
        let reason = answer.reason(refusal.code());
        let outcome = match (answer.status.as_u16(), refusal.code()) {
            (404, "UNREGISTERED") => BridgeOutcome::RecipientGone,
            (400, "INVALID_ARGUMENT") if refusal.is_of_the_token() => BridgeOutcome::RecipientGone,
            (400, "INVALID_ARGUMENT") if refusal.text("message").contains("too big") => {
                BridgeOutcome::TooLarge { max_bytes: DATA_BYTES_MAX }
            }
            (401, "THIRD_PARTY_AUTH_ERROR") | (403, "SENDER_ID_MISMATCH") => {
                BridgeOutcome::Misconfigured
            }
            (401, _) => return Verdict::refused_token(reason),
            (403, _) => BridgeOutcome::Unauthorized,
            (429, _) => BridgeOutcome::Busy { retry_after: answer.retry_after },
            (500.., _) => return Verdict::unavailable(answer, reason),
            _ => BridgeOutcome::Misconfigured,
        };
        Verdict::new(outcome, reason)
    }

    fn client(&self) -> &HttpClient {
        &self.client
    }
}

/// The JSON of a message. `data` is that of Android, as autopush sends it.
fn body(recipient: &BridgeRecipient, message: &Message, data: &MessageData<'_>) -> Bytes {
    let ttl = format!("{}s", message.ttl.min(TTL_MAX).0 / 1000);
    let mut android = json!({"ttl": ttl, "priority": priority(message.urgency), "data": data});
    if let Some(topic) = &message.topic {
        // Another channel may use the same topic.
        android["collapse_key"] = json!(format!("{}{}", message.chid, topic.as_str()));
    }
    json!({"message": {"token": recipient.token, "android": android}}).to_string().into()
}

/// Normal is Google's default for data, as 10 is Apple's. FCM lowers the priority of an app that shows nothing for a
/// message of high priority.
fn priority(urgency: Urgency) -> &'static str {
    match urgency {
        Urgency::VeryLow | Urgency::Low | Urgency::Normal => "NORMAL",
        Urgency::High => "HIGH",
    }
}

/// The `error` of an answer other than 200, as Google documents it. A field of an unexpected type counts as missing.
struct Refusal(Value);

impl Refusal {
    fn read(answer: &HttpAnswer) -> Self {
        let mut body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        Self(body.get_mut("error").map(Value::take).unwrap_or_default())
    }

    fn text(&self, name: &str) -> &str {
        self.0[name].as_str().unwrap_or_default()
    }

    fn details(&self) -> impl Iterator<Item = &Value> {
        self.0["details"].as_array().into_iter().flatten()
    }

    /// The code of FCM, or else that of Google's APIs.
    fn code(&self) -> &str {
        let code = self.details().find_map(|detail| detail["errorCode"].as_str());
        code.unwrap_or_else(|| self.text("status"))
    }

    /// Whether the token of the recipient can be none.
    fn is_of_the_token(&self) -> bool {
        let violations = self.details().filter_map(|detail| detail["fieldViolations"].as_array());
        violations.flatten().any(|violation| violation["field"] == "message.token")
            || self.text("message").contains("not a valid FCM registration token")
    }
}
