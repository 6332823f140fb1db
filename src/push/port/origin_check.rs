//! The `Origin` of a WebSocket handshake: a web page of another site opens no connection.
//!
//! A browser lets every page open a WebSocket to any server that it reaches, also to one on loopback
//! or in a private network, and sends the page's origin (RFC 6455 §10.2).

use actix_web::http::header::{HeaderMap, ORIGIN};
use actors::SharedLogLimiter;
use slog::{Logger, warn};
use state_machine::{Span, Time};
use url::Url;

use crate::settings::{AllowedOrigins, PublicUrl};

/// Minimum time between two log lines.
const LOG_EVERY: Span = Span::from_secs(60);

/// Maximum length of an origin in a log line, in characters.
const LOGGED_CHARS_MAX: usize = 256;

/// The check that all worker threads share.
pub struct OriginCheck {
    own: PublicUrl,
    allowed: AllowedOrigins,
    log_limiter: SharedLogLimiter,
}

impl OriginCheck {
    /// Admits pages of the public origin `own`, and those of `allowed`.
    pub fn new(own: PublicUrl, allowed: AllowedOrigins) -> Self {
        Self { own, allowed, log_limiter: SharedLogLimiter::new(LOG_EVERY) }
    }

    /// Whether a handshake with these headers may proceed. Refusals are logged.
    pub fn try_admit(&self, headers: &HeaderMap, now: Time, log: &Logger) -> bool {
        let mut origins = headers.get_all(ORIGIN);
        let Some(first) = origins.next() else { return true };
        let origin = first.to_str().unwrap_or_default();
        if self.admits(origin) && origins.next().is_none() {
            return true;
        }
        if let Some(refused) = self.log_limiter.count(now) {
            let origin: String = origin.chars().take(LOGGED_CHARS_MAX).collect();
            warn!(log, "a web page of another origin is refused, origins_allowed does not allow it";
                "origin" => origin, "refused" => refused);
        }
        false
    }

    fn admits(&self, origin: &str) -> bool {
        self.own.is_meant_by(origin) || is_user_agent(origin) || self.allowed.allows(origin)
    }
}

/// Whether no web page has this origin. Firefox sends the URL of its push server, and a user agent in
/// a browser extension has the origin of that.
fn is_user_agent(origin: &str) -> bool {
    let is_scheme = |scheme: &str| matches!(scheme, "ws" | "wss") || scheme.ends_with("-extension");
    Url::parse(origin).is_ok_and(|url| is_scheme(url.scheme()))
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HeaderValue;
    use slog::{Discard, o};

    use super::*;
    use crate::settings::value::Value;

    fn is_admitted(allowed: &str, origins: &[&str]) -> bool {
        let own = PublicUrl::parse("https://push.example.net").unwrap();
        let check = OriginCheck::new(own, AllowedOrigins::parse(allowed).unwrap());
        let mut headers = HeaderMap::new();
        for origin in origins {
            headers.append(ORIGIN, HeaderValue::from_bytes(origin.as_bytes()).unwrap());
        }
        check.try_admit(&headers, Time(1_000_000), &Logger::root(Discard, o!()))
    }

    #[test]
    fn user_agents_and_pages_of_the_own_origin_are_admitted() {
        assert!(is_admitted("", &[]));
        for origin in [
            "https://push.example.net",
            "https://PUSH.example.net:443",
            "wss://push.example.net/",
            "ws://192.168.0.7:8080/",
            "moz-extension://4cee6a31-6b0a-4b4a-8d9c-3c6f6f6f6f6f",
        ] {
            assert!(is_admitted("", &[origin]), "{origin}");
        }
    }

    #[test]
    fn pages_of_other_origins_are_admitted_only_by_the_setting() {
        let list = "https://a.example, http://localhost:3000";
        for (origin, is_listed) in [
            ("https://a.example", true),
            ("http://localhost:3000", true),
            ("http://a.example", false),
            ("https://a.example:8443", false),
            ("https://a.example.evil.example", false),
            ("http://push.example.net", false),
            ("https://evil.example", false),
            ("null", false),
            ("file://", false),
            ("", false),
            ("файл", false),
        ] {
            assert!(!is_admitted("", &[origin]), "{origin}");
            assert_eq!(is_admitted(list, &[origin]), is_listed, "{origin}");
            assert!(is_admitted("*", &[origin]), "{origin}");
        }
        assert!(!is_admitted("", &["https://push.example.net", "https://evil.example"]));
    }
}
