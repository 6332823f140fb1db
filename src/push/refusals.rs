//! The last requests that the public port refused, for `kalends refusals`, `kalends inspect` and the operator's page. They
//! have no path, no token and no payload.

use std::collections::VecDeque;

use actix_web::body::BoxBody;
use actix_web::dev::ServiceResponse;
use actix_web::http::Method;
use actix_web::{HttpMessage, HttpRequest};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use state_machine::{Time, Uaid};

use super::urls::endpoint_token::EndpointToken;

/// What the paths of feeds begin with.
const FEEDS_PATH: &str = "/v1/feeds/";

/// Different refusals that are kept. A further one takes the place of the one that was seen longest ago.
pub const REFUSALS_MAX: usize = 100;

/// The last [`REFUSALS_MAX`] refusals. Equal ones are one row, so that a sender that repeats itself hides no other.
#[derive(Default)]
pub struct Refusals {
    /// The one that was seen last is at the end.
    rows: Mutex<VecDeque<Refusal>>,
}

/// Equal refusals. Times are milliseconds since the Unix epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub status: u16,
    /// 0 of a WebSocket, which has none.
    pub errno: u16,
    /// The `message` of the answer.
    pub message: String,
    pub method: String,
    /// The route, with names in place of what a request has there. None if the path is none of the server's.
    pub route: Option<String>,
    /// The user agent and the channel of an endpoint.
    pub uaid: Option<Uaid>,
    pub chid: Option<String>,
    pub count: u64,
    pub first_ms: u64,
    pub last_ms: u64,
    /// The id of the last of them. Empty of a WebSocket.
    pub request: String,
}

/// What an error answer is about, beside its request: the extension of a response that [`Refusals`] reads.
#[derive(Debug, Clone)]
pub struct Refused {
    pub errno: u16,
    pub message: String,
}

/// A method by its name, if HTTP has it: a stranger could fill the rows with others.
fn method(method: &Method) -> &str {
    let known = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::DELETE,
        Method::OPTIONS,
        Method::PATCH,
        Method::TRACE,
        Method::CONNECT,
    ];
    if known.contains(method) { method.as_str() } else { "another method" }
}

impl Refusals {
    /// Notes an answer to a request with this id, if it is a refusal with an errno.
    pub fn note(&self, answer: &ServiceResponse<BoxBody>, request: &str, at: Time) {
        let extensions = answer.response().extensions();
        let Some(Refused { errno, message }) = extensions.get() else { return };
        let asked = answer.request();
        let of = asked.extensions().get::<EndpointToken>().copied();
        let method = method(asked.method());
        self.add(Refusal {
            uaid: of.map(|of| of.uaid),
            chid: of.map(|of| of.chid.to_string()),
            request: request.to_owned(),
            ..Refusal::new((answer.status().as_u16(), *errno), message, (method, route(asked)), at)
        });
    }

    /// Notes a refusal that has no answer with an errno. Equal messages are one row for all user agents: a stranger can
    /// have any number of these.
    pub fn note_as(
        &self,
        code: (u16, u16),
        message: &str,
        (method, route): (&str, &str),
        request: &str,
        at: Time,
    ) {
        let refusal = Refusal::new(code, message, (method, Some(route.to_owned())), at);
        self.add(Refusal { request: request.to_owned(), ..refusal });
    }

    /// Adds a refusal, which has a count of 1.
    fn add(&self, refusal: Refusal) {
        let mut rows = self.rows.lock();
        let known = rows.iter().rposition(|row| row.is_like(&refusal));
        let row = match known.and_then(|place| rows.remove(place)) {
            Some(row) => Refusal { count: row.count + 1, first_ms: row.first_ms, ..refusal },
            None => refusal,
        };
        if rows.len() == REFUSALS_MAX {
            rows.pop_front();
        }
        rows.push_back(row);
    }

    /// Those that are `wanted`, the last one first.
    pub fn last(&self, count: usize, wanted: impl Fn(&Refusal) -> bool) -> Vec<Refusal> {
        let rows = self.rows.lock();
        rows.iter().rev().filter(|row| wanted(row)).take(count).cloned().collect()
    }
}

/// The route of a request. Those of feeds have one pattern for all.
fn route(asked: &HttpRequest) -> Option<String> {
    let is_of_feeds = || asked.path().starts_with(FEEDS_PATH);
    asked.match_pattern().or_else(|| is_of_feeds().then(|| format!("{FEEDS_PATH}…")))
}

impl Refusal {
    fn new(
        (status, errno): (u16, u16),
        message: &str,
        (method, route): (&str, Option<String>),
        at: Time,
    ) -> Self {
        let (message, method) = (message.to_owned(), method.to_owned());
        let (uaid, chid, request) = (None, None, String::new());
        let (first_ms, last_ms) = (at.0, at.0);
        Self {
            status,
            errno,
            message,
            method,
            route,
            uaid,
            chid,
            count: 1,
            first_ms,
            last_ms,
            request,
        }
    }

    /// The status and the errno, if there is one.
    pub fn code(&self) -> String {
        match self.errno {
            0 => self.status.to_string(),
            errno => format!("{}, errno {errno}", self.status),
        }
    }

    fn is_like(&self, other: &Self) -> bool {
        (self.status, self.errno) == (other.status, other.errno)
            && (self.uaid, &self.chid) == (other.uaid, &other.chid)
            && self.method == other.method
            && self.route == other.route
            && self.message == other.message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(errno: u16, at: u64) -> Refusal {
        Refusal {
            status: 400,
            errno,
            message: "why".into(),
            method: "POST".into(),
            route: Some("/wpush/{token}".into()),
            uaid: Some(Uaid([7; 16])),
            chid: None,
            count: 1,
            first_ms: at,
            last_ms: at,
            request: at.to_string(),
        }
    }

    fn rows(refusals: &Refusals) -> Vec<(u16, u64, u64, u64, String)> {
        let rows = refusals.last(usize::MAX, |_| true);
        let row = |row: Refusal| (row.errno, row.count, row.first_ms, row.last_ms, row.request);
        rows.into_iter().map(row).collect()
    }

    #[test]
    fn equal_refusals_are_one_row_and_the_last_one_is_first() {
        let refusals = Refusals::default();
        for (errno, at) in [(111, 1), (110, 2), (111, 3), (111, 4)] {
            refusals.add(refusal(errno, at));
        }
        assert_eq!(rows(&refusals), [(111, 3, 1, 4, "4".into()), (110, 1, 2, 2, "2".into())]);
        for change in [
            |row: &mut Refusal| row.status = 401,
            |row: &mut Refusal| row.message = "another".into(),
            |row: &mut Refusal| row.method = "PUT".into(),
            |row: &mut Refusal| row.route = None,
            |row: &mut Refusal| row.uaid = None,
            |row: &mut Refusal| row.chid = Some("c".into()),
        ] {
            let refusals = Refusals::default();
            refusals.add(refusal(111, 1));
            let mut other = refusal(111, 2);
            change(&mut other);
            refusals.add(other);
            assert_eq!(rows(&refusals).len(), 2);
        }
        assert_eq!(refusals.last(1, |row| row.errno == 110).len(), 1);
    }

    #[test]
    fn the_row_that_was_seen_longest_ago_gives_way() {
        let refusals = Refusals::default();
        let max = REFUSALS_MAX as u64;
        for at in 0..max {
            refusals.add(refusal(at as u16, at));
        }
        refusals.add(refusal(0, max));
        refusals.add(refusal(999, max + 1));
        let rows = rows(&refusals);
        assert_eq!(rows.len(), REFUSALS_MAX);
        assert_eq!((rows[0].0, rows[1].0), (999, 0));
        assert!(!rows.iter().any(|row| row.0 == 1), "it was seen before 0");
    }
}
