//! The feed and the key that a URL names: `/v1/feeds/{feed}`, or `/v1/feeds/{feed}/{key}`.
//!
//! The path is decoded here and not by the router: a key may contain any text, slashes too, encoded or not.

use actix_web::http::Method;
use percent_encoding::percent_decode_str;
use state_machine::feed::FeedKey;

use super::error::FeedError;

/// The prefix of all paths.
pub(super) const BASE: &str = "/v1/feeds/";

/// The end of the path that publishes a key again.
const REPUBLISH: &str = "/republish";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    /// The feed's name; none if it cannot be decoded.
    pub(super) feed: Option<String>,
    /// The path behind the feed; none without a slash.
    pub(super) rest: Option<Rest>,
}

/// The path behind a feed's name and its slash; none if it cannot be decoded.
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

/// A change of a key, if it is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    Put(Result<FeedKey, FeedError>),
    Delete(Result<FeedKey, FeedError>),
    Republish(Result<FeedKey, FeedError>),
}

impl Rest {
    /// The change that a method makes. Only for `POST` the last segment has a meaning: a key may end with it.
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

/// Decodes percent-encoding (RFC 3986 §2.1). None for a `%` without two digits, and for bytes that are no UTF-8: the
/// key would not be the one that the client meant.
fn decode(text: &str) -> Option<String> {
    let has_digits = |rest: &str| matches!(rest.as_bytes(), [high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit());
    let is_sound = text.split('%').skip(1).all(has_digits);
    let decoded = is_sound.then(|| percent_decode_str(text).decode_utf8());
    decoded?.ok().map(String::from)
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
    fn a_key_is_the_path_behind_the_feed_decoded_once() {
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
    fn paths_that_are_no_key_are_refused() {
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
    fn post_republishes_the_key_before_the_last_segment() {
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
    fn for_other_methods_than_post_the_last_segment_is_part_of_the_key() {
        let path = "/v1/feeds/x/a/republish";
        let key = FeedKey::parse("a/republish").map_err(|_| FeedError::Key);
        assert_eq!(change(&Method::PUT, path), Ok(Change::Put(key.clone())));
        assert_eq!(change(&Method::DELETE, path), Ok(Change::Delete(key)));
        let refused = Err(FeedError::Method { allow: "PUT, DELETE, POST" });
        assert_eq!(change(&Method::GET, path), refused);
    }
}
