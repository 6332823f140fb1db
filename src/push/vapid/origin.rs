//! The origin that the audience of a token must match.

use url::Url;

/// Scheme, host and port of this server's endpoints (RFC 6454).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin(Url);

/// The text is not the URL of a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a URL with http or https and a host, such as https://push.example.net")]
pub struct OriginError(String);

impl Origin {
    /// The origin of a URL; the path and all behind it are ignored.
    pub fn parse(url: &str) -> Result<Self, OriginError> {
        let error = || OriginError(url.to_owned());
        let mut url = Url::parse(url).map_err(|_| error())?;
        let has_host = url.host_str().is_some_and(|host| !host.is_empty());
        if !has_host || !matches!(url.scheme(), "http" | "https") {
            return Err(error());
        }
        url.set_path("/");
        url.set_query(None);
        url.set_fragment(None);
        url.set_username("").and_then(|()| url.set_password(None)).map_err(|()| error())?;
        Ok(Self(url))
    }

    /// Without a slash at the end: `https://push.example.net`.
    pub fn as_str(&self) -> &str {
        self.0.as_str().trim_end_matches('/')
    }

    /// Whether an `aud` is this origin in any spelling: with a slash at the end, with the default
    /// port, with the host in capitals or in Unicode.
    pub fn is_meant_by(&self, audience: &str) -> bool {
        audience == self.as_str() || Url::parse(audience).is_ok_and(|url| url == self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        for (url, origin) in [
            ("https://push.example.net", "https://push.example.net"),
            ("https://push.example.net/", "https://push.example.net"),
            ("https://PUSH.example.net:443/path?q#f", "https://push.example.net"),
            ("https://user:secret@push.example.net", "https://push.example.net"),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://[::1]:8080/x", "http://[::1]:8080"),
        ] {
            assert_eq!(Origin::parse(url).unwrap().as_str(), origin);
        }
    }

    #[test]
    fn a_url_without_an_origin_is_refused() {
        for url in ["", "push.example.net", "ws://push.example.net", "https://", "data:x", "/path"]
        {
            assert_eq!(Origin::parse(url), Err(OriginError(url.to_owned())));
        }
    }

    #[test]
    fn an_audience_matches_in_any_spelling() {
        let origin = Origin::parse("https://push.example.net/prefix").unwrap();
        for same in [
            "https://push.example.net",
            "https://push.example.net/",
            "https://push.example.net:443",
            "HTTPS://Push.Example.NET",
        ] {
            assert!(origin.is_meant_by(same), "{same}");
        }
        for other in [
            "",
            "push.example.net",
            "http://push.example.net",
            "https://push.example.net:8443",
            "https://push.example.net.evil.example",
            "https://push.example.net@evil.example",
            "https://user@push.example.net",
            "https://push.example.net/path",
            "https://push.example.net/?query",
            "https://example.net",
        ] {
            assert!(!origin.is_meant_by(other), "{other}");
        }
    }
}
