//! Which requests the page answers: the `Host`, the `Origin`, the cookie and the form.

use std::time::Duration;

use actix_web::guard::GuardContext;
use actix_web::http::StatusCode;
use actix_web::http::header::{COOKIE, HeaderMap};
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse, ResponseError};
use url::form_urlencoded;

use super::pages::{self, Refusal, refusal};
use super::session::SESSION_LIFETIME;
use crate::push::body::read_body;
use crate::push::local_request::{host, is_same_origin, is_to_address};

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
    is_to_address(&context.head().headers)
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
    use actix_web::http::header::HOST;

    use super::*;
    use crate::push::local_request::tests::headers;

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
