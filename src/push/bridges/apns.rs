//! Apple Push Notification service: a request over HTTP/2 for each message.
//!
//! Rules of Apple that this keeps: one connection stays open; a provider token is used for 20 to 60 minutes.

use actors::Clock;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Request, StatusCode};
use parking_lot::Mutex;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use state_machine::{BridgeOutcome, BridgeRecipient, Message, Span, Time, Urgency};
use uuid::Uuid;

use super::config::{self, Opening, Section};
use super::http_client::{HttpAnswer, HttpClient, HttpRequest};
use super::message_data::MessageData;
use super::platform::{Platform, Verdict};
use crate::system::jwt::SigningKey;

const PRODUCTION: &str = "https://api.push.apple.com";
const SANDBOX: &str = "https://api.sandbox.push.apple.com";

/// Maximum size of a payload, the JSON as it is sent.
const PAYLOAD_BYTES_MAX: usize = 4096;

/// Maximum length of a device token. Apple's have 64 digits, and may grow.
const TOKEN_CHARS_MAX: usize = 512;

/// Length of a key id and of a team id.
const ID_CHARS: usize = 10;

/// Age at which a token is renewed. Apple refuses a token older than an hour.
const TOKEN_RENEWED_AFTER: Span = Span::from_secs(40 * 60);

/// Age from which a token may be replaced. Apple refuses a provider that changes it more often.
const TOKEN_AGE_MIN: Span = Span::from_secs(20 * 60);

/// The keys of an application in the file of bridges.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    /// A `.p8` key, or the private key of `certificate`.
    key: String,
    key_id: Option<String>,
    team_id: Option<String>,
    certificate: Option<String>,
    /// The bundle id of the application.
    topic: String,
    #[serde(default)]
    sandbox: bool,
    base_url: Option<String>,
}

struct Apns {
    client: HttpClient,
    base_url: String,
    topic: HeaderValue,
    /// None if the connection has a client certificate.
    tokens: Option<ProviderTokens>,
}

/// The token of a team, signed again from time to time.
struct ProviderTokens {
    key: SigningKey,
    key_id: String,
    team_id: String,
    clock: Clock,
    current: Mutex<Option<(Time, HeaderValue)>>,
}

pub(super) fn open(section: &Section<'_>) -> Opening {
    let config: Config = section.read()?;
    let default = if config.sandbox { SANDBOX } else { PRODUCTION };
    let base_url = section.base_url(config.base_url.as_deref(), default)?;
    let is_topic = !config.topic.is_empty() && config.topic.bytes().all(|b| b.is_ascii_graphic());
    let topic = HeaderValue::from_str(&config.topic).ok().filter(|_| is_topic);
    let topic =
        topic.ok_or_else(|| section.wrong("topic", "expected the bundle id of the application"))?;
    let (key_file, key) = section.secret("key", &config.key)?;
    let (tls, tokens) = match (&config.certificate, &config.key_id, &config.team_id) {
        (None, Some(key_id), Some(team_id)) => {
            for (name, id) in [("key_id", key_id), ("team_id", team_id)] {
                let allowed = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
                if id.len() != ID_CHARS || !id.bytes().all(allowed) {
                    let why = format!("expected {ID_CHARS} characters of A-Z 0-9");
                    return Err(section.wrong(name, why));
                }
            }
            let key = SigningKey::es256(key.as_bytes());
            let key = key.map_err(|why| config::field(&key_file, "key", why))?;
            let tokens = ProviderTokens {
                key,
                key_id: key_id.clone(),
                team_id: team_id.clone(),
                clock: section.clock.clone(),
                current: Mutex::default(),
            };
            (section.tls().with_no_client_auth(), Some(tokens))
        }
        (Some(certificate), None, None) => {
            let chain = section.certificates("certificate", certificate)?;
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes());
            let key =
                key.map_err(|_| config::field(&key_file, "key", "expected a private key in PEM"))?;
            let tls = section.tls().with_client_auth_cert(chain, key);
            let tls = tls.map_err(|error| match error {
                rustls::Error::InconsistentKeys(_) => {
                    section.wrong("certificate", "key is not the key of this certificate")
                }
                other => section.wrong("certificate", other.to_string()),
            });
            (tls?, None)
        }
        (None, None, _) => return Err(section.wrong("key_id", MISSING)),
        (None, Some(_), None) => return Err(section.wrong("team_id", MISSING)),
        (Some(_), Some(_), _) | (Some(_), None, Some(_)) => {
            return Err(section
                .wrong("certificate", "it excludes key_id and team_id, which are for a .p8 key"));
        }
    };
    let client = HttpClient::new(tls, section.wait);
    Ok(Box::new(Apns { client, base_url, topic, tokens }))
}

const MISSING: &str =
    "it is missing: a .p8 key needs key_id and team_id, a certificate needs certificate";

impl Platform for Apns {
    fn request(
        &self,
        recipient: &BridgeRecipient,
        message: &Message,
    ) -> Result<HttpRequest, BridgeOutcome> {
        let token = &recipient.token;
        // No other token can ever be one, and it is part of the path.
        if token.len() > TOKEN_CHARS_MAX || !token.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(BridgeOutcome::RecipientGone);
        }
        let aps = aps(recipient);
        let is_alert = ["alert", "badge", "sound"].iter().any(|key| aps.contains_key(*key));
        let mut payload = json!(MessageData::of(message));
        payload["ver"] = message.id.to_string().into();
        payload["aps"] = aps.into();
        let payload = Bytes::from(payload.to_string());
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(BridgeOutcome::TooLarge { max_bytes: PAYLOAD_BYTES_MAX });
        }
        let mut request = Request::post(format!("{}/3/device/{token}", self.base_url))
            .header(CONTENT_TYPE, "application/json")
            .header("apns-topic", self.topic.clone())
            .header("apns-push-type", if is_alert { "alert" } else { "background" })
            .header("apns-priority", priority(message.urgency, is_alert))
            .header("apns-expiration", expiration(message))
            // The same if the request is repeated, so that Apple can recognise it.
            .header("apns-id", Uuid::from_bytes(message.id.to_bytes()).hyphenated().to_string());
        if let Some(topic) = &message.topic {
            // Another channel may use the same topic. Together they have 64 characters at most, which Apple allows.
            let chid = message.chid.to_string().replace('-', "");
            request = request.header("apns-collapse-id", chid + topic.as_str());
        }
        Ok(request.body(Full::new(payload)).expect("digits and header values make a request"))
    }

    fn authorization(&self) -> BoxFuture<'_, Result<Option<HeaderValue>, Verdict>> {
        ready(Ok(self.tokens.as_ref().map(ProviderTokens::get))).boxed()
    }

    fn drop_token(&self, refused: &HeaderValue) -> bool {
        self.tokens.as_ref().is_some_and(|tokens| tokens.drop(refused))
    }

    /// Reads an answer by its `reason`, as Apple documents them.
    fn read(&self, answer: &HttpAnswer) -> Verdict {
        #[derive(Deserialize)]
        struct Refusal {
            reason: String,
        }
        let refusal = serde_json::from_slice::<Refusal>(&answer.body).ok();
        let reason = refusal.map(|refusal| refusal.reason).unwrap_or_default();
        let outcome = match (answer.status, reason.as_str()) {
            (StatusCode::OK, _) => return Verdict::new(BridgeOutcome::Accepted, ""),
            (StatusCode::GONE, "Unregistered" | "ExpiredToken") => BridgeOutcome::RecipientGone,
            (_, "ExpiredProviderToken") => return Verdict::refused_token(answer.reason(&reason)),
            (StatusCode::FORBIDDEN, _) => BridgeOutcome::Unauthorized,
            (StatusCode::PAYLOAD_TOO_LARGE, _) => {
                BridgeOutcome::TooLarge { max_bytes: PAYLOAD_BYTES_MAX }
            }
            (StatusCode::TOO_MANY_REQUESTS, _) => {
                BridgeOutcome::Busy { retry_after: answer.retry_after }
            }
            (_, "IdleTimeout") => BridgeOutcome::Unavailable,
            (status, _) if status.is_server_error() => {
                return Verdict::unavailable(answer, answer.reason(&reason));
            }
            _ => BridgeOutcome::Misconfigured,
        };
        Verdict::new(outcome, answer.reason(&reason))
    }

    fn client(&self) -> &HttpClient {
        &self.client
    }
}

impl ProviderTokens {
    fn get(&self) -> HeaderValue {
        let now = self.clock.now();
        let mut current = self.current.lock();
        // A clock that was set back makes the token one of the future.
        let is_fresh = |made_at| made_at <= now && now.since(made_at) < TOKEN_RENEWED_AFTER;
        if let Some((_, token)) = current.as_ref().filter(|(made_at, _)| is_fresh(*made_at)) {
            return token.clone();
        }
        let claims = json!({"iss": self.team_id, "iat": now.as_secs()});
        let token = format!("bearer {}", self.key.sign(&self.key_id, &claims.to_string()));
        let mut token = HeaderValue::from_str(&token).expect("base64url is a header value");
        token.set_sensitive(true);
        *current = Some((now, token.clone()));
        token
    }

    fn drop(&self, refused: &HeaderValue) -> bool {
        let now = self.clock.now();
        let mut current = self.current.lock();
        match &*current {
            // Another push has renewed it.
            Some((_, token)) if token != refused => true,
            Some((made_at, _)) if now.since(*made_at) < TOKEN_AGE_MIN => false,
            _ => {
                *current = None;
                true
            }
        }
    }
}

/// The `aps` dictionary that the agent asked for, or that of Firefox for iOS: its extension decrypts the message and
/// replaces the text.
fn aps(recipient: &BridgeRecipient) -> Map<String, Value> {
    let asked = recipient.aps.as_deref().and_then(|aps| serde_json::from_str(aps).ok());
    asked.unwrap_or_else(|| {
        let alert = json!({
            "loc-key": "SentTab.NoTabArrivingNotification.body",
            "title-loc-key": "SentTab.NoTabArrivingNotification.title",
        });
        [("alert".to_owned(), alert), ("mutable-content".to_owned(), json!(1))]
            .into_iter()
            .collect()
    })
}

/// Apple's default is 10. A background notification must not have it.
fn priority(urgency: Urgency, is_alert: bool) -> &'static str {
    match urgency {
        Urgency::VeryLow => "1",
        Urgency::High | Urgency::Normal if is_alert => "10",
        Urgency::Low | Urgency::Normal | Urgency::High => "5",
    }
}

/// Unix time in seconds. With 0, Apple tries once and keeps nothing.
fn expiration(message: &Message) -> u64 {
    match message.ttl_is_zero() {
        true => 0,
        false => message.expires_at().as_secs(),
    }
}
