//! Origins as settings: the public one, former ones, and those of web pages.

use url::Url;

/// An http or https origin: scheme, host and port, nothing behind them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicUrl(String);

/// Origins of web pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowedOrigins {
    All,
    Only(Vec<PublicUrl>),
}

/// Origins that this server had before.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FormerUrls(Vec<PublicUrl>);

/// Origins in [`FormerUrls`] at most: each push to a former one may be compared with all of them.
const FORMER_URLS_MAX: usize = 16;

impl PublicUrl {
    /// The origin, without a slash at its end.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a text is this origin in any spelling: with a slash at the end, with the default port, with the host in
    /// capitals or in Unicode.
    pub fn is_meant_by(&self, text: &str) -> bool {
        text == self.0 || Self::read(text).as_ref() == Ok(self)
    }

    pub(super) fn read(text: &str) -> Result<Self, String> {
        let is_origin = |url: &Url| {
            let bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
            let anonymous = url.username().is_empty() && url.password().is_none();
            matches!(url.scheme(), "http" | "https") && url.has_host() && bare && anonymous
        };
        let url = Url::parse(text).ok().filter(is_origin);
        let url = url
            .ok_or("expected an origin and nothing behind it, such as https://push.example.net")?;
        Ok(Self(url.origin().ascii_serialization()))
    }

    /// Reads a list with commas.
    fn read_all(text: &str) -> Result<Vec<Self>, String> {
        text.split(',').map(|url| Self::read(url.trim())).collect()
    }

    fn text_of_all(urls: &[Self]) -> String {
        urls.iter().map(Self::as_str).collect::<Vec<_>>().join(", ")
    }
}

impl Default for AllowedOrigins {
    fn default() -> Self {
        Self::Only(Vec::new())
    }
}

impl AllowedOrigins {
    /// Whether a page of this origin, as a browser writes it, may connect.
    pub fn allows(&self, origin: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(urls) => urls.iter().any(|url| url.0 == origin),
        }
    }

    pub(super) fn read(text: &str) -> Result<Self, String> {
        match text {
            "*" => Ok(Self::All),
            "" => Ok(Self::default()),
            text => PublicUrl::read_all(text).map(Self::Only),
        }
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::All => "*".to_owned(),
            Self::Only(urls) => PublicUrl::text_of_all(urls),
        }
    }
}

impl FormerUrls {
    pub fn urls(&self) -> &[PublicUrl] {
        &self.0
    }

    pub(super) fn read(text: &str) -> Result<Self, String> {
        let urls = if text.is_empty() { Vec::new() } else { PublicUrl::read_all(text)? };
        match urls.len() <= FORMER_URLS_MAX {
            true => Ok(Self(urls)),
            false => Err(format!("expected at most {FORMER_URLS_MAX} origins")),
        }
    }

    pub(super) fn text(&self) -> String {
        PublicUrl::text_of_all(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::value::Value;

    #[test]
    fn an_origin_is_meant_by_each_of_its_spellings() {
        let origin = PublicUrl::parse("https://push.example.net").unwrap();
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

    #[test]
    fn a_list_of_origins_is_read_as_it_is_shown() {
        for (text, shown) in [
            ("", ""),
            ("*", "*"),
            ("https://A.example/,http://b.example:80", "https://a.example, http://b.example"),
        ] {
            let origins = AllowedOrigins::parse(text).unwrap();
            assert_eq!(origins.show(), shown);
            assert_eq!(AllowedOrigins::parse(shown), Ok(origins));
        }
        for wrong in ["https://a.example,", "a.example", "*, https://a.example", "null"] {
            assert!(AllowedOrigins::parse(wrong).is_err(), "{wrong}");
        }
    }
}
