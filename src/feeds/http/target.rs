//! Which feed and which key a URL names: `/v1/feeds/{feed}`, or `/v1/feeds/{feed}/{key}`.
//!
//! The path is read as it was sent: a key may hold whatever can be percent-encoded, slashes too, encoded or not.

use actix_web::http::Method;
use state_machine::feed::FeedKey;

use super::error::FeedError;

/// Where all paths begin.
pub(super) const BASE: &str = "/v1/feeds/";

/// What a path behind a key's stands for.
const REPUBLISH: &str = "/republish";

/// A path, decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    /// The feed's name, which may be none.
    pub(super) feed: Option<String>,
    /// What is behind it; none where there is no slash.
    pub(super) rest: Option<Rest>,
}

/// What is behind a feed's name and its slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rest(Option<String>);

impl Target {
    /// Reads the path of a request.
    pub(super) fn read(path: &str) -> Self {
        let path = path.strip_prefix(BASE).unwrap_or_default();
        let (feed, rest) = match path.split_once('/') {
            Some((feed, rest)) => (feed, Some(Rest(decode(rest)))),
            None => (path, None),
        };
        Self { feed: decode(feed), rest }
    }
}

/// What is to be done with a key, if it is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// Set it.
    Put(Result<FeedKey, FeedError>),
    /// Delete it.
    Delete(Result<FeedKey, FeedError>),
    /// Publish it again.
    Republish(Result<FeedKey, FeedError>),
}

impl Rest {
    /// What a method asks for. Only `POST` gives the last word of a path a meaning: a key may end with it.
    pub(super) fn change(&self, method: &Method) -> Result<Change, FeedError> {
        let text = self.0.as_deref();
        let republished = text.and_then(|text| text.strip_suffix(REPUBLISH));
        match (method, republished) {
            (&Method::PUT, _) => Ok(Change::Put(key(text))),
            (&Method::DELETE, _) => Ok(Change::Delete(key(text))),
            (&Method::POST, Some(text)) => Ok(Change::Republish(key(Some(text)))),
            (_, Some(_)) => Err(FeedError::Method { allow: "PUT, DELETE, POST" }),
            (_, None) => Err(FeedError::Method { allow: "PUT, DELETE" }),
        }
    }
}

fn key(text: Option<&str>) -> Result<FeedKey, FeedError> {
    text.and_then(|text| FeedKey::parse(text).ok()).ok_or(FeedError::Key)
}

/// Takes percent-encoding away (RFC 3986 §2.1). None where a `%` begins nothing, or the bytes are no UTF-8: a key that
/// is not the one that was meant is worse than none.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let [high, low, behind @ ..] = rest else { return None };
        bytes.push(digit(*high)? << 4 | digit(*low)?);
        rest = behind;
    }
    String::from_utf8(bytes).ok()
}

fn digit(hex: u8) -> Option<u8> {
    char::from(hex).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(method: &Method, path: &str) -> Result<Change, FeedError> {
        let target = Target::read(path);
        assert_eq!(target.feed.as_deref(), Some("x"), "{path}");
        target.rest.expect("there is a slash").change(method)
    }

    fn key_of(path: &str) -> Result<String, FeedError> {
        match change(&Method::PUT, path) {
            Ok(Change::Put(key)) => key.map(|key| key.to_string()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_key_is_all_that_is_behind_the_feed_decoded_once() {
        let longest = "k".repeat(256);
        for (path, key) in [
            ("a", "a"),
            ("remote-settings/monitor_changes", "remote-settings/monitor_changes"),
            ("remote-settings%2Fmonitor_changes", "remote-settings/monitor_changes"),
            ("a//b/", "a//b/"),
            ("../../keys.toml", "../../keys.toml"),
            ("a+b", "a+b"),
            ("a%20b", "a b"),
            ("100%25", "100%"),
            ("%2541", "%41"),
            ("%C3%A4%c3%b6", "äö"),
            ("a%3Fb", "a?b"),
            ("republish", "republish"),
            ("a/republish", "a/republish"),
            (&longest, &longest),
        ] {
            assert_eq!(key_of(&format!("/v1/feeds/x/{path}")), Ok(key.to_owned()), "{path}");
        }
        assert_eq!(key_of("/v1/feeds/%78/a"), Ok("a".to_owned()));
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let (long, encoded) = ("k".repeat(257), "%C3%A4".repeat(129));
        for wrong in ["", "%", "%4", "%zz", "%+1", "%ff", "%C3", "%00", "a%0Ab", &long, &encoded] {
            assert_eq!(key_of(&format!("/v1/feeds/x/{wrong}")), Err(FeedError::Key), "{wrong}");
        }
    }

    #[test]
    fn a_feed_without_a_slash_has_no_key() {
        let feed = |path| Target::read(path).feed;
        assert_eq!(Target::read("/v1/feeds/x").rest, None);
        assert_eq!(feed("/v1/feeds/x").as_deref(), Some("x"));
        assert_eq!(feed("/v1/feeds/").as_deref(), Some(""));
        assert_eq!(feed("/v1/feeds/%ff"), None);
        assert_eq!(feed("/%761/feeds/x").as_deref(), Some(""));
    }

    #[test]
    fn what_is_published_again_is_what_is_before_the_last_word() {
        let republished = |rest: &str| change(&Method::POST, &format!("/v1/feeds/x/{rest}"));
        let key = |text| FeedKey::parse(text).map_err(|_| FeedError::Key);
        assert_eq!(republished("a/republish"), Ok(Change::Republish(key("a"))));
        let twice = Change::Republish(key("a/republish"));
        assert_eq!(republished("a/republish/republish"), Ok(twice));
        assert_eq!(republished("/republish"), Ok(Change::Republish(Err(FeedError::Key))));
        for other in ["a", "republish", "a/republish/", "a-republish", "%ff/republish"] {
            let refused = Err(FeedError::Method { allow: "PUT, DELETE" });
            assert_eq!(republished(other), refused, "{other}");
        }
    }

    #[test]
    fn other_methods_than_post_take_the_last_word_for_a_part_of_the_key() {
        let path = "/v1/feeds/x/a/republish";
        let key = FeedKey::parse("a/republish").map_err(|_| FeedError::Key);
        assert_eq!(change(&Method::PUT, path), Ok(Change::Put(key.clone())));
        assert_eq!(change(&Method::DELETE, path), Ok(Change::Delete(key)));
        let refused = Err(FeedError::Method { allow: "PUT, DELETE, POST" });
        assert_eq!(change(&Method::GET, path), refused);
    }
}
