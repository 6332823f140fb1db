//! Access tokens of a service account (RFC 7523).

use std::path::Path;
use std::time::Duration;

use actors::Clock;
use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use state_machine::{BridgeOutcome, Span, Time};
use tokio::time::timeout;
use url::form_urlencoded;

use crate::push::bridges::config::{self, BridgesError};
use crate::push::bridges::http_client::{HttpAnswer, HttpClient};
use crate::push::bridges::platform::Verdict;
use crate::system::jwt::SigningKey;

const SCOPE: &str = "https://www.googleapis.com/auth/firebase.messaging";

const GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

/// Validity of a signed assertion, in seconds; Google accepts an hour.
const ASSERTION_VALID_S: u64 = 60 * 60;

/// Maximum length of the id of a project. Google's have 30 characters, with the domain of an organisation more.
const PROJECT_CHARS_MAX: usize = 64;

/// How long before its end a token is renewed; at most half of its life.
const RENEWED_BEFORE: Span = Span::from_secs(5 * 60);

/// Wait after a renewal that failed while the old token is valid.
const RENEWAL_BACKOFF: Span = Span::from_secs(10);

/// The service account of a project, as the Firebase console issues it.
pub(super) struct ServiceAccount {
    pub(super) project_id: String,
    client_email: String,
    token_uri: String,
    key_id: String,
    key: SigningKey,
}

/// The access token of an application. It is renewed before it ends, by one request however many pushes wait.
pub(super) struct AccessTokens {
    account: ServiceAccount,
    /// Timeout of a renewal.
    wait: Duration,
    clock: Clock,
    state: Mutex<State>,
    /// Held during a renewal.
    renewal: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    token: Option<Token>,
    /// Number of renewals that ended, and why the last one failed.
    renewals: u64,
    failure: Option<Verdict>,
}

struct Token {
    /// The value of `Authorization`.
    header: HeaderValue,
    renew_at: Time,
    expires_at: Time,
}

impl ServiceAccount {
    /// Parses the text of the file; `path` is only named in errors.
    pub(super) fn read(path: &Path, text: &str) -> Result<Self, BridgesError> {
        let fields = serde_json::from_str::<Map<String, Value>>(text);
        let wrong = |name: &str, why: &str| config::field(path, name, why);
        let fields = fields.map_err(|_| {
            wrong(
                "type",
                "expected the JSON of a service account, as the Firebase console issues it",
            )
        })?;
        let read = |name: &str| match fields.get(name).and_then(Value::as_str) {
            Some(text) if !text.is_empty() => Ok(text.to_owned()),
            _ => Err(wrong(name, "it is missing, or no text")),
        };
        if read("type").ok().as_deref() != Some("service_account") {
            let why = "not a service account: in the Firebase console, Service accounts, Generate new private key";
            return Err(wrong("type", why));
        }
        let project_id = read("project_id")?;
        // It is part of a path.
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".:-_".contains(&byte);
        if project_id.len() > PROJECT_CHARS_MAX
            || !project_id.bytes().all(allowed)
            || project_id.bytes().all(|byte| byte == b'.')
        {
            return Err(wrong("project_id", "expected the id of a Firebase project"));
        }
        let token_uri = config::secure_url(&read("token_uri")?);
        let token_uri = token_uri.map_err(|why| wrong("token_uri", why))?.to_string();
        let key = SigningKey::rs256(read("private_key")?.as_bytes());
        let key = key.map_err(|why| wrong("private_key", why))?;
        let (client_email, key_id) = (read("client_email")?, read("private_key_id")?);
        Ok(Self { project_id, client_email, token_uri, key_id, key })
    }

    /// The body of a request for a token.
    fn token_request(&self, now: Time) -> String {
        let issued_at = now.as_secs();
        let claims = json!({
            "iss": self.client_email,
            "scope": SCOPE,
            "aud": self.token_uri,
            "iat": issued_at,
            "exp": issued_at + ASSERTION_VALID_S,
        });
        let assertion = self.key.sign(&self.key_id, &claims.to_string());
        let mut body = form_urlencoded::Serializer::new(String::new());
        body.append_pair("grant_type", GRANT_TYPE).append_pair("assertion", &assertion).finish()
    }
}

impl AccessTokens {
    pub(super) fn new(account: ServiceAccount, wait: Duration, clock: Clock) -> Self {
        let (state, renewal) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { account, wait, clock, state, renewal }
    }

    /// The token, or why there is none.
    pub(super) async fn get(&self, client: &HttpClient) -> Result<HeaderValue, Verdict> {
        let (valid, seen) = {
            let (state, now) = (self.state.lock(), self.clock.now());
            if let Some(header) = state.token_at(now, |token| token.renew_at) {
                return Ok(header);
            }
            (state.token_at(now, |token| token.expires_at), state.renewals)
        };
        let _renewing = match (self.renewal.try_lock(), valid) {
            (Ok(renewing), _) => renewing,
            // Another push renews it.
            (Err(_), Some(header)) => return Ok(header),
            (Err(_), None) => self.renewal.lock().await,
        };
        // Unless a renewal has ended since this push began to wait for one.
        if self.state.lock().renewals == seen {
            let renewed = timeout(self.wait, self.request(client)).await;
            let renewed = renewed.unwrap_or_else(|_| Err(Verdict::timed_out(self.wait)));
            self.state.lock().renewed(renewed, self.clock.now());
        }
        let state = self.state.lock();
        let failed =
            || state.failure.clone().unwrap_or_else(|| no_token("the token has ended".into()));
        state.token_at(self.clock.now(), |token| token.expires_at).ok_or_else(failed)
    }

    /// Drops the token if it is still this one.
    pub(super) fn drop(&self, refused: &HeaderValue) {
        let mut state = self.state.lock();
        state.token.take_if(|token| token.header == *refused);
    }

    async fn request(&self, client: &HttpClient) -> Result<Token, Verdict> {
        let now = self.clock.now();
        let body = self.account.token_request(now);
        let request = Request::post(&self.account.token_uri)
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Full::new(Bytes::from(body)))
            .expect("the URL was read at the start");
        match client.call(request).await {
            Ok(answer) => read_token(&answer, now),
            Err(error) => {
                Err(Verdict::new(BridgeOutcome::Unavailable, format!("token server: {error}")))
            }
        }
    }
}

impl State {
    /// The token if `now` is before that time of it.
    fn token_at(&self, now: Time, until: impl Fn(&Token) -> Time) -> Option<HeaderValue> {
        let token = self.token.as_ref().filter(|token| now < until(token))?;
        Some(token.header.clone())
    }

    fn renewed(&mut self, renewed: Result<Token, Verdict>, now: Time) {
        self.renewals += 1;
        match renewed {
            Ok(token) => (self.token, self.failure) = (Some(token), None),
            Err(verdict) => {
                self.failure = Some(verdict);
                if let Some(token) = &mut self.token {
                    token.renew_at = now + RENEWAL_BACKOFF;
                }
            }
        }
    }
}

/// Reads the answer of the token server (RFC 6749 §5).
fn read_token(answer: &HttpAnswer, asked_at: Time) -> Result<Token, Verdict> {
    #[derive(Deserialize)]
    struct Granted {
        access_token: String,
        /// Seconds. Some servers write `3599.0`.
        expires_in: f64,
    }
    #[derive(Deserialize)]
    struct Refused {
        error: String,
    }
    if answer.status.is_server_error() || answer.status.as_u16() == 429 {
        return Err(Verdict::unavailable(answer, format!("token server: {}", answer.reason(""))));
    }
    let granted = serde_json::from_slice::<Granted>(&answer.body).ok();
    let token = granted.filter(|_| answer.status.is_success()).and_then(|granted| {
        let mut header = HeaderValue::from_str(&format!("Bearer {}", granted.access_token)).ok()?;
        header.set_sensitive(true);
        let life = Duration::try_from_secs_f64(granted.expires_in).ok()?;
        let life = Span::from_secs(life.as_secs());
        let expires_at = asked_at + life;
        let renew_at = expires_at - RENEWED_BEFORE.min(Span(life.0 / 2));
        Some(Token { header, renew_at, expires_at })
    });
    token.ok_or_else(|| {
        let refused = serde_json::from_slice::<Refused>(&answer.body);
        let error = refused.map(|refused| refused.error).unwrap_or_default();
        no_token(format!("token server: {}", answer.reason(&error)))
    })
}

fn no_token(reason: String) -> Verdict {
    Verdict::new(BridgeOutcome::Unauthorized, reason)
}
