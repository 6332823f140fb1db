//! The credentials of a request.

use actix_web::http::header::{AUTHORIZATION, HeaderMap};

/// Those of the only `Authorization`, if it has one of these schemes.
pub fn authorization<'a>(headers: &'a HeaderMap, schemes: &[&str]) -> Option<&'a str> {
    let mut values = headers.get_all(AUTHORIZATION);
    let text = values.next()?.to_str().ok()?;
    let (scheme, credentials) = text.trim().split_once(' ')?;
    let is_known = schemes.iter().any(|known| scheme.eq_ignore_ascii_case(known));
    (is_known && values.next().is_none()).then_some(credentials.trim())
}
