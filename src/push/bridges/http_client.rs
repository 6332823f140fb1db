//! HTTP/2 with bounds: one connection to each origin, kept open.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::header::RETRY_AFTER;
use hyper::{Request, Response, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use state_machine::Span;
use tokio::time::sleep;

use crate::system::https_client::with_causes;

pub(super) type HttpRequest = Request<Full<Bytes>>;

/// Maximum size of the body of an answer. A larger one is not read, and only its status counts.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Maximum size of the headers of an answer.
const HEADERS_BYTES_MAX: u32 = 16 * 1024;

/// Interval of HTTP/2 pings, which also detect a dead connection that has nothing to send.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// The least and the greatest `Retry-After` that is passed on, in seconds.
const RETRY_AFTER_S: (u64, u64) = (1, 24 * 60 * 60);

/// A client of one application.
pub(super) struct HttpClient(Client<HttpsConnector<HttpConnector>, Full<Bytes>>);

/// An answer of the bridge.
#[derive(Debug, Clone)]
pub(super) struct HttpAnswer {
    pub(super) status: StatusCode,
    /// `Retry-After` in seconds; the other form, a date, is ignored.
    pub(super) retry_after: Option<Span>,
    pub(super) body: Bytes,
}

/// Repetitions of a request whose connection broke. One may still get the broken connection.
const REPEATS_MAX: u32 = 2;

/// Pause before a repetition, in which the end of the connection is noticed.
const REPEAT_PAUSE: Duration = Duration::from_millis(20);

/// Maximum length of the reason of a bridge in the log.
const REASON_CHARS_MAX: usize = 60;

impl HttpClient {
    /// `wait` is the timeout of a whole request, which the caller imposes.
    pub(super) fn new(tls: ClientConfig, wait: Duration) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        // Half of the time, so that a second address or a repetition has the other half.
        tcp.set_connect_timeout(Some(wait / 2));
        let https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        let client = Client::builder(TokioExecutor::new())
            .http2_only(true)
            .http2_max_header_list_size(HEADERS_BYTES_MAX)
            .http2_keep_alive_interval(PING_INTERVAL)
            .http2_keep_alive_timeout(wait)
            .http2_keep_alive_while_idle(true)
            // APNs regards many short connections as an attack.
            .pool_idle_timeout(None)
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .build(https.enable_http2().wrap_connector(tcp));
        Self(client)
    }

    /// Sends a request. If the connection breaks, repeats it on a new one: the bridge may then have the message more
    /// than once, but never not at all.
    pub(super) async fn call(&self, request: HttpRequest) -> Result<HttpAnswer, String> {
        for _ in 0..REPEATS_MAX {
            match self.call_once(request.clone()).await {
                Err((_, true)) => sleep(REPEAT_PAUSE).await,
                answer => return answer.map_err(|(why, _)| why),
            }
        }
        self.call_once(request).await.map_err(|(why, _)| why)
    }

    /// An error is why there is no answer, and whether the bridge may have got the request.
    async fn call_once(&self, request: HttpRequest) -> Result<HttpAnswer, (String, bool)> {
        let sent = self.0.request(request).await;
        let response = sent.map_err(|error| (with_causes(&error), !error.is_connect()))?;
        let (status, retry_after) = (response.status(), retry_after(&response));
        let body = match Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => Bytes::new(),
            Err(error) => return Err((with_causes(&*error), true)),
        };
        Ok(HttpAnswer { status, retry_after, body })
    }
}

impl HttpAnswer {
    /// Its status and the code in its body, for the log. A code has letters and digits; anything else is not one.
    pub(super) fn reason(&self, code: &str) -> String {
        let is_code = |sign: &char| sign.is_ascii_alphanumeric() || *sign == '_';
        let code: String = code.chars().filter(is_code).take(REASON_CHARS_MAX).collect();
        format!("{} {code}", self.status.as_u16()).trim_end().to_owned()
    }
}

fn retry_after<B>(response: &Response<B>) -> Option<Span> {
    let seconds: u64 = response.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    let (min, max) = RETRY_AFTER_S;
    Some(Span::from_secs(seconds.clamp(min, max)))
}
