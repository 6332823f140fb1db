//! Which requests the page answers: the `Host`, the `Origin`, the cookie and the form.

use std::net::IpAddr;
use std::time::Duration;

use actix_web::guard::GuardContext;
use actix_web::http::StatusCode;
use actix_web::http::header::{COOKIE, HOST, HeaderMap, ORIGIN};
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse, ResponseError};
use url::form_urlencoded;

use super::pages::{self, Refusal, refusal};
use super::session::SESSION_LIFETIME;
use crate::push::body::read_body;

/// Maximum size of a form, in bytes: an endpoint, and the token of the form.
const FORM_BYTES_MAX: usize = 8 * 1024;

/// Maximum time for a form to arrive.
const FORM_WAIT: Duration = Duration::from_secs(5);

/// The fields of a form.
pub(super) struct Form(Vec<(String, String)>);

impl Form {
    pub(super) fn field(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(field, _)| field == name);
        found.map_or("", |(_, value)| value.trim())
    }
}

/// Whether the `Host` is an address or `localhost`. A site whose name was made to resolve to this address sends its
/// name.
pub(super) fn has_address(context: &GuardContext<'_>) -> bool {
    host(&context.head().headers).is_some_and(is_address)
}

fn is_address(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let in_brackets = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    name.eq_ignore_ascii_case("localhost") || in_brackets.unwrap_or(name).parse::<IpAddr>().is_ok()
}

fn host(headers: &HeaderMap) -> Option<&str> {
    headers.get(HOST)?.to_str().ok()
}

/// Whether a page of this server sent the request.
fn is_same_origin(headers: &HeaderMap) -> bool {
    let origin = headers.get(ORIGIN).and_then(|origin| origin.to_str().ok());
    let origin = origin.and_then(|origin| origin.split_once("://"));
    let is_web = |scheme| matches!(scheme, "http" | "https");
    origin.zip(host(headers)).is_some_and(|((scheme, authority), host)| {
        is_web(scheme) && authority.eq_ignore_ascii_case(host)
    })
}

/// Cookies do not depend on the port: its number is in the name, so that two servers of a machine differ.
fn cookie_name(headers: &HeaderMap) -> String {
    let port = host(headers).and_then(|host| host.rsplit_once(':')).map_or("80", |(_, port)| port);
    let digits: String = port.chars().filter(char::is_ascii_digit).collect();
    format!("kalends_admin_{digits}")
}

/// The cookie of a session. Of none, the browser removes the one that it has.
pub(super) fn cookie_of(headers: &HeaderMap, session: &str) -> String {
    let name = cookie_name(headers);
    let seconds = if session.is_empty() { 0 } else { SESSION_LIFETIME.0 / 1000 };
    format!("{name}={session}; Path=/admin; Max-Age={seconds}; HttpOnly; SameSite=Strict")
}

pub(super) fn cookie(headers: &HeaderMap) -> Option<&str> {
    let name = cookie_name(headers);
    let cookies = headers.get_all(COOKIE).filter_map(|cookies| cookies.to_str().ok());
    let mut pairs =
        cookies.flat_map(|cookies| cookies.split(';')).filter_map(|cookie| cookie.split_once('='));
    pairs.find(|(found, _)| found.trim() == name).map(|(_, value)| value.trim())
}

/// The answer to a request with the name of another site as `Host`.
pub(super) async fn misdirected() -> HttpResponse {
    pages::message(
        StatusCode::MISDIRECTED_REQUEST,
        "This page is only at an IP address or at localhost: forward the port with ssh -L.",
    )
}

/// Reads a form, if a page of this server sent it.
pub(super) async fn read_form(request: &HttpRequest, body: Payload) -> Result<Form, Refusal> {
    if !is_same_origin(request.headers()) {
        let text = "This form was sent by another site, which the server refuses.";
        return Err(refusal(pages::message(StatusCode::FORBIDDEN, text)));
    }
    let read = read_body(request.headers(), body, FORM_BYTES_MAX, FORM_WAIT).await;
    let body = read.map_err(|error| refusal(error.error_response()))?;
    Ok(Form(form_urlencoded::parse(&body).into_owned().collect()))
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::{HeaderName, HeaderValue};

    use super::*;

    fn headers(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(HeaderName, &'static str)| {
            (name.clone(), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn a_host_is_an_address_or_localhost() {
        for host in ["127.0.0.1", "127.0.0.1:8082", "[::1]:8082", "localhost:1", "LocalHost"] {
            assert!(is_address(host), "{host}");
        }
        for host in ["", "evil.example:8082", "localhost.evil.example", "127.0.0.1.evil:1", "a:b"] {
            assert!(!is_address(host), "{host}");
        }
    }

    #[test]
    fn the_origin_of_a_form_is_this_server() {
        let is_same =
            |origin| is_same_origin(&headers(&[(HOST, "127.0.0.1:8082"), (ORIGIN, origin)]));
        assert!(is_same("http://127.0.0.1:8082"));
        for other in
            ["null", "", "http://127.0.0.1", "http://evil.example", "file://127.0.0.1:8082"]
        {
            assert!(!is_same(other), "{other}");
        }
        assert!(!is_same_origin(&headers(&[(HOST, "127.0.0.1:8082")])));
    }

    #[test]
    fn a_cookie_is_that_of_the_port() {
        let sent = headers(&[
            (HOST, "127.0.0.1:8082"),
            (COOKIE, "a=b; kalends_admin_8083=other; kalends_admin_8082=this"),
        ]);
        assert_eq!(cookie(&sent), Some("this"));
        assert!(cookie_of(&sent, "this").starts_with("kalends_admin_8082=this; Path=/admin; "));
        assert_eq!(
            cookie(&headers(&[(HOST, "127.0.0.1"), (COOKIE, "kalends_admin_8082=x")])),
            None
        );
    }
}
