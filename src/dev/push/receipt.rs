//! What became of a push: its receipt (RFC 8030 §5.1), which the server publishes after the ack.

use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use ureq::http::{HeaderMap, header::LINK};
use url::Url;

use crate::system::https_client::{ClientError, http_client, why_unanswered};
use crate::system::printable::printable;

/// The relation of a `Link` to the receipts of a push.
const RELATION: &str = r#"rel="urn:ietf:params:push:receipt""#;

/// Largest page of receipts that is read, in bytes.
const PAGE_BYTES_MAX: u64 = 1 << 20;

/// How long an answer may take beyond the time that the server may wait.
const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// Time between two questions, for a server that does not wait.
const PAUSE: Duration = Duration::from_millis(200);

/// The state of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Receipt {
    /// `delivered` or `expired`; `stored` while neither is reported, and `none` if the server reports nothing.
    status: String,
    /// That of the ack.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u16>,
}

impl Receipt {
    /// The answer had no `Link`.
    pub(super) fn none() -> Self {
        Self { status: "none".to_owned(), code: None }
    }

    pub(super) fn text(&self) -> String {
        let meaning = match (self.status.as_str(), self.code) {
            ("delivered", Some(101)) => "the user agent acked it, and could not decrypt it",
            ("delivered", Some(102)) => "the user agent acked it, and its app did not handle it",
            ("delivered", _) => "the user agent acked it",
            ("expired", _) => "its TTL ended without an ack",
            ("stored", _) => "the user agent has not acked it yet",
            ("none", _) => "there is none with a TTL of 0, or for a user agent behind a bridge",
            _ => return printable(&self.status),
        };
        format!("{}: {meaning}", self.status)
    }
}

/// The receipts that the answer to a push names.
pub(super) fn link(headers: &HeaderMap) -> Option<Url> {
    let links = headers.get_all(LINK).into_iter().filter_map(|link| link.to_str().ok());
    let named = links.filter_map(|link| link.trim().strip_prefix('<')?.split_once('>'));
    let receipts = named.filter(|(_, parameters)| parameters.contains(RELATION));
    receipts.filter_map(|(url, _)| Url::parse(url).ok()).next()
}

/// Waits for the receipt of the message at `location`. It is `stored` if none is there in time.
pub(super) fn wait(receipts: &Url, location: &str, time: Duration) -> Result<Receipt, ClientError> {
    #[derive(Deserialize)]
    struct Page {
        receipts: Vec<Reported>,
        cursor: u64,
    }
    #[derive(Deserialize)]
    struct Reported {
        message: String,
        #[serde(flatten)]
        receipt: Receipt,
    }
    let client = http_client(receipts)?;
    let (end, mut after) = (Instant::now() + time, 0);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let mut url = receipts.clone();
        let wait_s = left.as_millis().div_ceil(1000);
        url.query_pairs_mut()
            .append_pair("after", &after.to_string())
            .append_pair("wait", &wait_s.to_string());
        let request = client.get(url.as_str()).config();
        let answered = request.timeout_recv_response(Some(left + ANSWER_WAIT)).build().call();
        let unreachable = |error| ClientError::Unreachable {
            url: receipts.origin().ascii_serialization(),
            why: why_unanswered(error),
        };
        let mut answer = answered.map_err(unreachable)?;
        let status = answer.status();
        let body = answer.body_mut().with_config().limit(PAGE_BYTES_MAX).read_to_vec();
        let page = serde_json::from_slice::<Page>(&body.map_err(unreachable)?).ok();
        let page = page.filter(|_| status.is_success()).ok_or_else(|| {
            let why = format!("the push is accepted, and its receipts are answered {status}");
            ClientError::Refused(why)
        })?;
        after = page.cursor;
        let own = page.receipts.into_iter().find(|reported| reported.message == location);
        match own {
            Some(Reported { receipt, .. }) => return Ok(receipt),
            None if left.is_zero() => {
                return Ok(Receipt { status: "stored".to_owned(), code: None });
            }
            None => thread::sleep(PAUSE.min(left)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_to_the_receipts_is_found_among_others() {
        let mut headers = HeaderMap::new();
        assert_eq!(link(&headers), None);
        for value in [
            "<https://a/other>; rel=\"next\"",
            "<https://a/receipts/t>; rel=\"urn:ietf:params:push:receipt\"",
        ] {
            headers.append(LINK, value.parse().unwrap());
        }
        assert_eq!(link(&headers).unwrap().as_str(), "https://a/receipts/t");
    }

    #[test]
    fn a_receipt_is_printed_in_words() {
        for (status, code, text) in [
            ("delivered", Some(100), "delivered: the user agent acked it"),
            (
                "delivered",
                Some(101),
                "delivered: the user agent acked it, and could not decrypt it",
            ),
            ("expired", None, "expired: its TTL ended without an ack"),
            ("stored", None, "stored: the user agent has not acked it yet"),
            ("\u{1b}", None, "\\u{1b}"),
        ] {
            assert_eq!(Receipt { status: status.to_owned(), code }.text(), text);
        }
    }
}
