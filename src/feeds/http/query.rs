//! The parameters of a read: `?after=&limit=&wait=`, and the two headers of an event stream.

use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::http::Method;
use actix_web::http::header::{ACCEPT, HeaderMap};
use state_machine::feed::FeedSyncId;
use state_machine::store::PageLimit;
use url::form_urlencoded;

use super::error::FeedError;
use super::service::FeedRequestLimits;

/// The header with the cursor of an `EventSource` that reconnects (WHATWG HTML §9.2.4).
const LAST_EVENT_ID: &str = "last-event-id";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReadQuery {
    /// The cursor; 0 is the beginning.
    pub(super) after: FeedSyncId,
    pub(super) limit: PageLimit,
    /// How long the request may wait for an update.
    pub(super) wait: Duration,
    /// Whether the answer is a stream of server-sent events.
    pub(super) is_stream: bool,
    /// Whether only its headers are wanted, at once.
    pub(super) is_head: bool,
}

impl ReadQuery {
    /// Parses the request, and lowers its values to the limits.
    pub(super) fn read(
        request: &HttpRequest,
        limits: &FeedRequestLimits,
    ) -> Result<Self, FeedError> {
        let is_stream = wants_events(request.headers());
        let (mut after, mut limit, mut wait) = (FeedSyncId::NONE, limits.page, Duration::ZERO);
        let mut names = Vec::new();
        for (name, value) in form_urlencoded::parse(request.query_string().as_bytes()) {
            match &*name {
                "after" => after = cursor(&value).ok_or(FeedError::Cursor("after"))?,
                "limit" => {
                    let rows = number(&value).filter(|rows| *rows > 0).ok_or(FeedError::Limit)?;
                    limit.rows = limits.page.rows.min(rows.try_into().unwrap_or(usize::MAX));
                }
                "wait" => {
                    let secs = number(&value).ok_or(FeedError::Wait)?;
                    wait = Duration::from_secs(secs).min(limits.wait_max);
                }
                _ => {
                    let text = "the parameters are after, limit and wait".to_owned();
                    return Err(FeedError::Query(text));
                }
            }
            if names.contains(&name) {
                return Err(FeedError::Query(format!("{name} was given more than once")));
            }
            names.push(name);
        }
        if is_stream && let Some(last) = last_event_id(request.headers())? {
            after = last;
        }
        let is_head = *request.method() == Method::HEAD;
        let wait = if is_head { Duration::ZERO } else { wait };
        Ok(Self { after, limit, wait, is_stream, is_head })
    }
}

/// Refuses parameters: a `?` in a key must be percent-encoded.
pub(super) fn none(request: &HttpRequest) -> Result<(), FeedError> {
    let text = || "there are no parameters here, a ? in a key is %3F".to_owned();
    request.uri().query().map_or(Ok(()), |_| Err(FeedError::Query(text())))
}

fn wants_events(headers: &HeaderMap) -> bool {
    let is_events = |item: &str| {
        let kind = item.split(';').next().unwrap_or_default();
        kind.trim().eq_ignore_ascii_case("text/event-stream")
    };
    let values = headers.get_all(ACCEPT).filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(is_events)
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<FeedSyncId>, FeedError> {
    let Some(value) = headers.get(LAST_EVENT_ID) else { return Ok(None) };
    let text = value.to_str().ok().filter(|_| headers.get_all(LAST_EVENT_ID).count() == 1);
    match text {
        Some("") => Ok(None),
        text => text.and_then(cursor).map(Some).ok_or(FeedError::Cursor("Last-Event-ID")),
    }
}

/// Parses a cursor. The empty one is the beginning of the feed (docs/sources.md#feed-sequences-note).
fn cursor(text: &str) -> Option<FeedSyncId> {
    if text.is_empty() { Some(FeedSyncId::NONE) } else { number(text).map(FeedSyncId) }
}

/// Parses decimal digits. A number beyond 64 bits counts as the greatest of them.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HeaderValue;
    use actix_web::test::TestRequest;

    use super::*;
    use crate::feeds::http::fixture::limits;
    use crate::fuzz::fuzz;

    /// A request to read, with headers.
    fn read(query: &str, headers: &[(&'static str, &str)]) -> Result<ReadQuery, FeedError> {
        let request = TestRequest::with_uri(&format!("/v1/feeds/x{query}"));
        let request =
            headers.iter().fold(request, |request, header| request.append_header(*header));
        ReadQuery::read(&request.to_http_request(), &limits())
    }

    fn after(query: &str) -> Result<u64, FeedError> {
        read(query, &[]).map(|read| read.after.0)
    }

    const STREAM: (&str, &str) = ("accept", "text/event-stream");

    #[test]
    fn a_read_without_parameters_is_a_page_from_the_beginning() {
        let limit = limits().page;
        let expected = ReadQuery {
            after: FeedSyncId::NONE,
            limit,
            wait: Duration::ZERO,
            is_stream: false,
            is_head: false,
        };
        for query in ["", "?", "?after=", "?after=0", "?wait=0"] {
            assert_eq!(read(query, &[]), Ok(expected), "{query}");
        }
    }

    #[test]
    fn a_cursor_is_a_decimal_number() {
        assert_eq!(after("?after=7"), Ok(7));
        assert_eq!(after("?after=007"), Ok(7));
        assert_eq!(after("?after=%37"), Ok(7));
        assert_eq!(after("?after=99999999999999999999999"), Ok(u64::MAX));
        for wrong in ["-1", "%2B1", "1.0", "0x1", "one", "1%20", "%20", "%D9%A7", "%00", "1,2"] {
            assert_eq!(after(&format!("?after={wrong}")), Err(FeedError::Cursor("after")));
        }
    }

    #[test]
    fn a_limit_is_lowered_to_the_greatest_and_never_zero() {
        let rows = |query: &str| read(query, &[]).map(|read| read.limit.rows);
        let most = limits().page.rows;
        assert_eq!(rows("?limit=1"), Ok(1));
        assert_eq!(rows(&format!("?limit={}", most + 1)), Ok(most));
        assert_eq!(rows("?limit=99999999999999999999999"), Ok(most));
        for wrong in ["", "0", "000", "-1", "many", "1.5"] {
            assert_eq!(rows(&format!("?limit={wrong}")), Err(FeedError::Limit), "{wrong}");
        }
    }

    #[test]
    fn a_wait_is_lowered_to_the_longest() {
        let wait = |query: &str| read(query, &[]).map(|read| read.wait);
        let most = limits().wait_max;
        assert_eq!(wait("?wait=1"), Ok(Duration::from_secs(1)));
        assert_eq!(wait("?wait=99999999999999999999999"), Ok(most));
        for wrong in ["", "-1", "soon", "1.5", "1s"] {
            assert_eq!(wait(&format!("?wait={wrong}")), Err(FeedError::Wait), "{wrong}");
        }
    }

    #[test]
    fn unknown_and_repeated_parameters_are_refused() {
        for wrong in ["?cursor=1", "?After=1", "?after=1&x=", "?after=1&after=1", "?=", "?a"] {
            assert!(matches!(read(wrong, &[]), Err(FeedError::Query(_))), "{wrong}");
        }
    }

    #[test]
    fn a_client_that_accepts_events_gets_a_stream() {
        for (accept, is_stream) in [
            ("text/event-stream", true),
            ("Text/Event-Stream; charset=utf-8", true),
            ("application/json, text/event-stream;q=0.5", true),
            ("application/json", false),
            ("text/*", false),
            ("*/*", false),
        ] {
            let query = read("", &[("accept", accept)]).unwrap();
            assert_eq!(query.is_stream, is_stream, "{accept}");
        }
    }

    #[test]
    fn the_last_event_id_overrides_the_cursor_in_the_url() {
        let last = |id, query: &str| {
            read(query, &[STREAM, ("last-event-id", id)]).map(|read| read.after.0)
        };
        assert_eq!(last("9", "?after=4"), Ok(9));
        assert_eq!(last("0", "?after=4"), Ok(0));
        assert_eq!(last("", "?after=4"), Ok(4));
        assert_eq!(last("9", "?after=x"), Err(FeedError::Cursor("after")));
        for wrong in ["x", "-1", "9,10", "9 10"] {
            assert_eq!(last(wrong, ""), Err(FeedError::Cursor("Last-Event-ID")), "{wrong}");
        }
        let twice = [STREAM, ("last-event-id", "1"), ("last-event-id", "2")];
        assert_eq!(read("", &twice), Err(FeedError::Cursor("Last-Event-ID")));
    }

    #[test]
    fn no_hostile_query_panics_or_exceeds_the_limits() {
        // The query, and `Last-Event-ID`.
        let samples =
            ["after=7&limit=10&wait=60\n", "limit=%31&after=0\n9", "wait=5\n18446744073709551615"];
        fuzz("feed_queries", &samples, |bytes| {
            let text = String::from_utf8_lossy(bytes);
            let (query, last) = text.split_once('\n').unwrap_or((&text, ""));
            let target = format!("/v1/feeds/x?{query}");
            if target.parse::<actix_web::http::Uri>().is_err() {
                return;
            }
            let Ok(last) = HeaderValue::from_str(last) else { return };
            let request = TestRequest::with_uri(&target).append_header(STREAM);
            let request = request.append_header((LAST_EVENT_ID, last)).to_http_request();
            if let Ok(read) = ReadQuery::read(&request, &limits()) {
                let page = limits().page;
                assert!(
                    (1..=page.rows).contains(&read.limit.rows) && read.limit.bytes == page.bytes
                );
                assert!(read.wait <= limits().wait_max);
            }
        });
    }

    #[test]
    fn without_a_stream_the_last_event_id_is_ignored() {
        let page = read("?after=4", &[("last-event-id", "9")]).unwrap();
        assert_eq!(page.after, FeedSyncId(4));
    }
}
