//! What a page of another site cannot send to an interface of this machine: the `Host` and the `Origin`.

use std::net::IpAddr;

use actix_web::http::header::{HOST, HeaderMap, ORIGIN};

/// Whether the `Host` is an address or `localhost`. A site whose name was made to resolve to this address sends its
/// name.
pub fn is_to_address(headers: &HeaderMap) -> bool {
    host(headers).is_some_and(is_address)
}

fn is_address(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let in_brackets = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    name.eq_ignore_ascii_case("localhost") || in_brackets.unwrap_or(name).parse::<IpAddr>().is_ok()
}

pub fn host(headers: &HeaderMap) -> Option<&str> {
    headers.get(HOST)?.to_str().ok()
}

/// Whether a page of this server sent the request.
pub fn is_same_origin(headers: &HeaderMap) -> bool {
    let origin = headers.get(ORIGIN).and_then(|origin| origin.to_str().ok());
    let origin = origin.and_then(|origin| origin.split_once("://"));
    let is_web = |scheme| matches!(scheme, "http" | "https");
    origin.zip(host(headers)).is_some_and(|((scheme, authority), host)| {
        is_web(scheme) && authority.eq_ignore_ascii_case(host)
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use actix_web::http::header::{HeaderName, HeaderValue};

    use super::*;

    pub(crate) fn headers(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
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
}
