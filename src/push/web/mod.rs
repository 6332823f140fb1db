//! The page that a browser gets at `/`: what this server is, how to use it, and a trial. A path and the state of the
//! server enter. HTML with its files leaves.
//!
//! The page has a VAPID token of the server and is its own application server, so that the trial needs no route
//! (decision 48). It has no text that a stranger sent.

mod devices;
mod errors;
mod html;

use actix_web::http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderMap, REFERRER_POLICY, VARY,
    X_CONTENT_TYPE_OPTIONS,
};
use actix_web::web::Path;
use actix_web::{HttpResponse, HttpResponseBuilder, Resource, ResponseError};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, json};
use state_machine::Time;

use self::devices::Device;
pub(crate) use self::html::{escaped, with_code};
use super::error::PushError;
use super::port::methods::{page, read};
use crate::system::build::Build;
use crate::system::jwt;

/// What the page may load, and from where. Nothing is inline.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; worker-src 'self'; \
                      img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Time for which a browser keeps the files of the page.
const FILES_CACHE: &str = "max-age=300";

/// Time for which a token is valid. An open page reads a new one whenever it reads the state of the server.
const TOKEN_VALID_S: u64 = 3600;

const PAGE: &str = include_str!("page.html");

/// The page of a closed server for those without an address of their own.
const CLOSED: &str = include_str!("closed.html");

/// The files of the page: name, type and contents.
const FILES: [(&str, &str, &str); 3] = [
    ("page.css", "text/css; charset=utf-8", include_str!("page.css")),
    ("page.js", "text/javascript; charset=utf-8", include_str!("page.js")),
    ("worker.js", "text/javascript; charset=utf-8", include_str!("worker.js")),
];

/// Firefox refuses a `ws:` URL without this.
const INSECURE: &str = "<li>Search for <span class=\"value\">\
    <code id=\"insecure\">dom.push.testing.allowInsecureServerURL</code> \
    <button type=\"button\" data-copy=\"insecure\" hidden>Copy</button></span> \
    Choose <strong>Boolean</strong> and create it with <strong>+</strong>. It must be <code>true</code>, because this \
    address has no TLS.</li>\n";

/// The page of a server.
pub struct WebPage {
    /// Scheme, host and port of endpoints.
    origin: String,
    /// Signs the push that the page sends itself (RFC 8292). Only subscriptions of the trial have this key, so a token
    /// permits nothing else. The key is in memory only, because a trial subscribes anew.
    key: EcdsaKeyPair,
}

impl WebPage {
    pub fn new(origin: String) -> Self {
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING);
        Self { origin, key: key.expect("the system has random numbers") }
    }

    /// The page for a user agent that connects at this path, with a sentence on the state of the server. It begins with
    /// the device of its visitor.
    pub(super) fn answer(
        &self,
        (path, headers): (&str, &HeaderMap),
        (is_up, state): (bool, &str),
        now: Time,
    ) -> HttpResponse {
        let mut answer = match is_up {
            true => HttpResponse::Ok(),
            false => HttpResponse::ServiceUnavailable(),
        };
        with_security(&mut answer)
            .insert_header((CACHE_CONTROL, "no-store"))
            .insert_header((VARY, "accept, user-agent"))
            .content_type("text/html; charset=utf-8")
            .body(self.text((path, Device::of(headers)), (is_up, state), now))
    }

    fn text(
        &self,
        (path, device): (&str, Device),
        (is_up, state): (bool, &str),
        now: Time,
    ) -> String {
        let address = format!("{}{path}", self.origin);
        let address = address.trim_end_matches('/');
        let socket = format!("ws{}{path}", self.origin.strip_prefix("http").unwrap_or_default());
        let is_insecure = self.origin.starts_with("http:");
        let (user_js, policies) = preferences(&socket, is_insecure);
        let host = self.origin.split_once("://").map_or("", |(_, host)| host);
        let public_key = URL_SAFE_NO_PAD.encode(self.key.public_key());
        let mut text = PAGE.to_owned();
        for (name, value) in [
            ("{{state_class}}", if is_up { "up" } else { "down" }),
            ("{{state}}", state),
            ("{{open}}", if is_up { " open" } else { "" }),
            ("{{version}}", Build::TEXT),
            ("{{devices}}", device.text().as_str()),
            ("{{insecure}}", if is_insecure { INSECURE } else { "" }),
            ("{{notice}}", devices::notice(&self.origin)),
            ("{{qr}}", device.qr_code(&self.origin, address).as_str()),
            ("{{host}}", escaped(host).as_str()),
            ("{{key}}", public_key.as_str()),
            ("{{token}}", self.token(now).as_str()),
            ("{{origin}}", escaped(&self.origin).as_str()),
            ("{{user_js}}", user_js.as_str()),
            ("{{policies}}", policies.as_str()),
            // The path is last: what it contains is not replaced.
            ("{{http_url}}", escaped(address).as_str()),
            ("{{socket_url}}", escaped(&socket).as_str()),
        ] {
            text = text.replace(name, value);
        }
        text
    }

    /// A VAPID token for pushes to endpoints of this server.
    fn token(&self, now: Time) -> String {
        let (aud, exp) = (&self.origin, now.as_secs() + TOKEN_VALID_S);
        let claims = json!({"aud": aud, "exp": exp, "sub": aud});
        jwt::es256(&self.key, r#"{"alg":"ES256","typ":"JWT"}"#, &claims.to_string())
    }
}

/// The files of Firefox that set its push server, for a profile and for a computer, in the form of a data URL.
fn preferences(socket: &str, is_insecure: bool) -> (String, String) {
    let mut all = vec![("dom.push.serverURL", json!(socket))];
    if is_insecure {
        all.push(("dom.push.testing.allowInsecureServerURL", json!(true)));
    }
    let lines = all.iter().map(|(name, value)| format!("user_pref({}, {value});\n", json!(name)));
    let user_js: String = lines.collect();
    let values = all
        .iter()
        .map(|(name, value)| (name.to_string(), json!({"Value": value, "Status": "default"})));
    let policies = json!({"policies": {"Preferences": values.collect::<Map<_, _>>()}});
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    (encoded(&user_js), encoded(&policies.to_string()))
}

/// The answer to a browser that opens a closed server without a valid token.
pub(super) fn closed() -> HttpResponse {
    with_security(&mut HttpResponse::Forbidden())
        .insert_header((CACHE_CONTROL, "no-store"))
        .content_type("text/html; charset=utf-8")
        .body(CLOSED)
}

/// Whether a browser asks for a page.
pub fn wants_page(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html"))
}

/// The files of the page, on a node of any role: a proxy may send them to another one than the page.
pub(super) fn files() -> Resource {
    page("/web/{file}", read().to(file))
}

/// What the numbers of errors mean, on a node of any role: each one answers with errors.
pub(super) fn errors() -> Resource {
    page("/errors", read().to(show_errors))
}

async fn show_errors() -> HttpResponse {
    with_security(&mut HttpResponse::Ok())
        .insert_header((CACHE_CONTROL, FILES_CACHE))
        .content_type("text/html; charset=utf-8")
        .body(errors::PAGE.as_str())
}

async fn file(name: Path<String>) -> HttpResponse {
    let Some((_, kind, contents)) = FILES.iter().find(|(file, ..)| *file == name.as_str()) else {
        return PushError::NotFound.error_response();
    };
    with_security(&mut HttpResponse::Ok())
        .insert_header((CACHE_CONTROL, FILES_CACHE))
        .content_type(*kind)
        .body(*contents)
}

fn with_security(answer: &mut HttpResponseBuilder) -> &mut HttpResponseBuilder {
    answer
        .insert_header((CONTENT_SECURITY_POLICY, POLICY))
        .insert_header((X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header((REFERRER_POLICY, "no-referrer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UP: (bool, &str) = (true, "This server is running.");

    fn text(origin: &str, path: &str, state: (bool, &str)) -> String {
        WebPage::new(origin.to_owned()).text((path, Device::Firefox), state, Time(0))
    }

    #[test]
    fn the_page_has_the_addresses_of_this_server() {
        let text = text("https://push.example.net", "/", UP);
        for expected in [
            "<code id=\"socket\">wss://push.example.net/</code>",
            "<code id=\"address\">https://push.example.net</code>",
            "data-origin=\"https://push.example.net\"",
            "class=\"up\">This server is running.",
            "<details id=\"setup\" data-state=\"up\" open>",
        ] {
            assert!(text.contains(expected), "{expected}");
        }
        assert!(!text.contains("{{") && !text.contains("allowInsecureServerURL"), "{text}");
    }

    #[test]
    fn a_server_without_tls_names_the_preference_that_firefox_needs() {
        let text = text("http://127.0.0.1:8080", "/u/kal_x", (false, "This server is stopping."));
        assert!(text.contains("ws://127.0.0.1:8080/u/kal_x<"), "{text}");
        assert!(text.contains("allowInsecureServerURL"), "{text}");
        assert!(text.contains("class=\"down\">This server is stopping."), "{text}");
        assert!(text.contains("<details id=\"setup\" data-state=\"down\">"), "{text}");
    }

    #[test]
    fn the_files_of_firefox_have_the_address() {
        let decoded = |text: &str| {
            percent_encoding::percent_decode_str(text).decode_utf8().unwrap().into_owned()
        };
        let (user_js, policies) = preferences("wss://push.example.net/", false);
        let expected = "user_pref(\"dom.push.serverURL\", \"wss://push.example.net/\");\n";
        assert_eq!(decoded(&user_js), expected);
        let policies: serde_json::Value = serde_json::from_str(&decoded(&policies)).unwrap();
        let set = json!({"Value": "wss://push.example.net/", "Status": "default"});
        let expected = json!({"policies": {"Preferences": {"dom.push.serverURL": set}}});
        assert_eq!(policies, expected);
        let (user_js, policies) = preferences("ws://127.0.0.1:1/u/\"\\;", true);
        assert!(
            decoded(&user_js)
                .ends_with("user_pref(\"dom.push.testing.allowInsecureServerURL\", true);\n")
        );
        assert!(decoded(&user_js).contains("/u/\\\"\\\\;\""), "it is escaped");
        assert!(decoded(&policies).contains("allowInsecureServerURL"));
    }

    #[test]
    fn no_text_is_shown_unescaped() {
        let text = text("https://a", "/u/<script>\"'&", UP);
        assert!(text.contains("wss://a/u/&lt;script&gt;&quot;&#39;&amp;<"), "{text}");
    }

    #[test]
    fn the_page_and_its_files_are_small_and_have_nothing_inline() {
        let bytes: usize = FILES.iter().map(|(_, _, contents)| contents.len()).sum();
        assert!(PAGE.len() + INSECURE.len() + bytes < 26_000, "{}", PAGE.len() + bytes);
        for inline in ["style=", "onclick", "<style", "javascript:", "<script>"] {
            assert!(!PAGE.contains(inline), "{inline}");
        }
    }
}
