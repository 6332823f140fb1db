//! The receipt that a sender asks for with a push (RFC 8030 §5.1), and the URL at which it reads its receipts.
//!
//! ```text
//!   Prefer: respond-async                                  the message gets a receipt
//!   Link: </receipts/…>; rel="urn:ietf:params:push:receipt"   in this subscription, if it can take it
//! ```
//!
//! `src/feeds/http/receipts.rs` answers the requests for a subscription.

use actix_web::http::header::{HeaderMap, LINK};
use actors::SharedLogLimiter;
use aws_lc_rs::rand;
use slog::{Logger, info};
use state_machine::feed::FeedName;
use state_machine::{Span, Time};

use crate::push::params;
use crate::push::urls::sealed;
use crate::settings::keys::{Keys, Purpose, SealKeys, TAG_BYTES};

/// The prefix of the path of a subscription.
pub const BASE: &str = "/receipts/";

/// The relation of a receipt subscription (RFC 8030 §9.2).
pub(crate) const RELATION: &str = "urn:ietf:params:push:receipt";

/// `Link` headers that are read, in bytes.
const LINK_BYTES_MAX: usize = 4096;

/// Of the SHA-256 of the sender's VAPID key.
const SENDER_BYTES: usize = 16;

/// The end, the id and the sender.
const SEALED_BYTES: usize = 8 + 16 + SENDER_BYTES + TAG_BYTES;

/// The limits of receipts.
#[derive(Debug, Clone, Copy)]
pub struct ReceiptLimits {
    /// Messages of one subscription, with and without receipt.
    pub messages_max: u64,
    /// How long a receipt is kept at least.
    pub keep: Span,
    /// How long a subscription lasts.
    pub lifetime: Span,
}

/// Why a push with the wish for a receipt is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReceiptError {
    /// RFC 8030 §5.1. The same for a link that was invented and for one of another sender.
    #[error(
        "the Link header has no receipt subscription of this sender, as <URL>; rel=\"urn:ietf:params:push:receipt\": \
         leave it out, and take the one of the answer"
    )]
    UnknownLink,
    #[error("the receipt subscription of the Link header is full: leave it out for another one")]
    Full,
}

/// Counts the pushes whose receipt subscription was full.
pub struct ReceiptsFull(SharedLogLimiter);

/// Minimum time between two log lines of full subscriptions.
const LOG_EVERY: Span = Span::from_secs(60);

impl Default for ReceiptsFull {
    fn default() -> Self {
        Self(SharedLogLimiter::new(LOG_EVERY))
    }
}

impl ReceiptsFull {
    pub fn refused(&self) -> u64 {
        self.0.total()
    }

    pub(crate) fn count(&self, now: Time, messages_max: u64, log: &Logger) {
        if let Some(refused) = self.0.count(now) {
            info!(log, "receipt subscriptions are full, pushes with their links get 429";
                "receipt_messages_max" => messages_max, "refused" => refused);
        }
    }
}

/// Seals subscriptions into URLs. A URL is a secret of the sender, and cannot be forged.
pub struct ReceiptUrls {
    keys: SealKeys,
}

/// A receipt subscription, as its URL has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiptSubscription {
    id: [u8; 16],
    pub(crate) ends_at: Time,
    sender: [u8; SENDER_BYTES],
}

/// What the headers of a push say about a receipt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiptWish {
    /// The token of the subscription in `Link`.
    pub(crate) token: Option<String>,
}

impl ReceiptUrls {
    pub fn new(keys: &Keys) -> Self {
        Self { keys: SealKeys::derive(keys, Purpose::ReceiptSubscription) }
    }

    /// The path of a subscription, to append to the public URL.
    pub fn path(&self, subscription: &ReceiptSubscription) -> String {
        let ReceiptSubscription { id, ends_at, sender } = subscription;
        let parts = [&ends_at.as_secs().to_be_bytes()[..], id, sender];
        sealed::seal::<SEALED_BYTES>(&self.keys, BASE, &parts)
    }

    /// The subscription of a path's last segment. None if it was not made with the keys of this server.
    pub fn open(&self, token: &str) -> Option<ReceiptSubscription> {
        let mut buffer = [0; SEALED_BYTES];
        let plain = sealed::open(&self.keys, &[], token, &mut buffer)?;
        let (ends_at, rest) = plain.split_first_chunk()?;
        let (id, sender) = rest.split_first_chunk()?;
        let ends_at = Time(u64::from_be_bytes(*ends_at).saturating_mul(1000));
        Some(ReceiptSubscription { id: *id, ends_at, sender: sender.try_into().ok()? })
    }
}

impl ReceiptSubscription {
    pub(crate) fn new(ends_at: Time, key: Option<[u8; 32]>) -> Self {
        let mut id = [0; 16];
        rand::fill(&mut id).expect("the system gives random bytes");
        Self { id, ends_at, sender: sender(key) }
    }

    pub fn feed(&self) -> FeedName {
        FeedName::receipts(self.ends_at, u128::from_be_bytes(self.id))
    }

    /// Whether it is of the sender with this VAPID key (its SHA-256), or of one without.
    pub fn is_of(&self, key: Option<[u8; 32]>) -> bool {
        self.sender == sender(key)
    }
}

fn sender(key: Option<[u8; 32]>) -> [u8; SENDER_BYTES] {
    let mut sender = [0; SENDER_BYTES];
    if let Some(key) = key {
        sender.copy_from_slice(&key[..SENDER_BYTES]);
    }
    sender
}

impl ReceiptWish {
    /// None unless the push prefers an asynchronous answer (RFC 7240 §4.1): then `Link` is not read.
    pub fn read(headers: &HeaderMap) -> Result<Option<Self>, ReceiptError> {
        if !prefers_async(headers) {
            return Ok(None);
        }
        let mut token = None;
        for value in headers.get_all(LINK) {
            let text = value.to_str().ok().filter(|text| text.len() <= LINK_BYTES_MAX);
            for target in targets(text.ok_or(ReceiptError::UnknownLink)?) {
                let (_, last) = target.rsplit_once(BASE).ok_or(ReceiptError::UnknownLink)?;
                if token.replace(last.to_owned()).is_some() {
                    return Err(ReceiptError::UnknownLink);
                }
            }
            if token.is_none()
                && value.as_bytes().windows(BASE.len()).any(|it| it == BASE.as_bytes())
            {
                // Without its relation or brackets: the sender would wait at a subscription that gets nothing.
                return Err(ReceiptError::UnknownLink);
            }
        }
        Ok(Some(Self { token }))
    }
}

fn prefers_async(headers: &HeaderMap) -> bool {
    let values = headers.get_all("prefer").filter_map(|value| value.to_str().ok());
    let mut preferences = values.flat_map(|value| value.split(','));
    preferences.any(|preference| {
        let name = preference.split([';', '=']).next().unwrap_or_default();
        name.trim().eq_ignore_ascii_case("respond-async")
    })
}

/// The targets of a `Link` header (RFC 8288 §3) that have the relation of a receipt subscription.
fn targets(header: &str) -> impl Iterator<Item = &str> {
    let links = header.split('<').skip(1);
    links.filter_map(|link| {
        let (target, parameters) = link.split_once('>')?;
        let mut parameters = parameters.split([';', ',']);
        let is_receipt = parameters.any(|parameter| {
            let Some((name, value)) = params::item(parameter) else { return false };
            name.eq_ignore_ascii_case("rel")
                && value.split_ascii_whitespace().any(|rel| rel.eq_ignore_ascii_case(RELATION))
        });
        is_receipt.then_some(target.trim())
    })
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::{HeaderName, HeaderValue};

    use super::*;
    use crate::fuzz::fuzz;

    fn urls() -> ReceiptUrls {
        ReceiptUrls::new(&Keys::from_texts(&["A".repeat(43)]).unwrap())
    }

    fn subscription() -> ReceiptSubscription {
        ReceiptSubscription::new(Time(1_796_000_000_000), Some([7; 32]))
    }

    fn wish(lines: &[(&'static str, &str)]) -> Result<Option<ReceiptWish>, ReceiptError> {
        let line = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        ReceiptWish::read(&lines.iter().map(line).collect())
    }

    fn token(lines: &[(&'static str, &str)]) -> Option<String> {
        wish(lines).unwrap().unwrap().token
    }

    #[test]
    fn a_path_opens_to_its_subscription_and_to_no_other() {
        let (urls, made) = (urls(), subscription());
        let path = urls.path(&made);
        let token = path.strip_prefix(BASE).unwrap();
        assert_eq!(token.len(), 75);
        assert_eq!(urls.open(token).as_ref(), Some(&made));
        assert_eq!(made.feed().receipts_end(), Some(Time(1_796_000_000_000)));
        for at in 0..token.len() {
            let mut changed = token.to_owned();
            changed.replace_range(at..=at, if token[at..].starts_with('A') { "B" } else { "A" });
            assert_eq!(urls.open(&changed), None, "{at}");
        }
        for wrong in ["", "A", &"A".repeat(75), &"A".repeat(1 << 16), "é"] {
            assert_eq!(urls.open(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_subscription_is_of_the_sender_that_made_it() {
        let made = subscription();
        assert!(made.is_of(Some([7; 32])));
        assert!(!made.is_of(Some([8; 32])) && !made.is_of(None));
        let of_none = ReceiptSubscription::new(Time(0), None);
        assert!(of_none.is_of(None) && !of_none.is_of(Some([7; 32])));
    }

    #[test]
    fn only_respond_async_asks_for_a_receipt() {
        for prefer in
            ["respond-async", "Respond-Async", "wait=5, respond-async; x=1", "a,respond-async"]
        {
            assert_eq!(token(&[("prefer", prefer)]), None, "{prefer}");
        }
        for other in ["", "wait=5", "respond-async2", "respond-sync", "x=respond-async"] {
            assert_eq!(wish(&[("prefer", other)]), Ok(None), "{other}");
        }
        let link = "<nonsense>; rel=\"urn:ietf:params:push:receipt\"";
        assert_eq!(wish(&[("link", link)]), Ok(None));
    }

    #[test]
    fn the_subscription_is_the_link_with_its_relation() {
        const ASKED: (&str, &str) = ("prefer", "respond-async");
        for link in [
            "<https://push.example/receipts/abc>; rel=\"urn:ietf:params:push:receipt\"",
            "</receipts/abc>;rel=urn:ietf:params:push:receipt",
            "<x>; rel=next, </receipts/abc>; title=\"a\"; rel=\"other urn:ietf:params:push:receipt\"",
        ] {
            assert_eq!(token(&[ASKED, ("link", link)]).as_deref(), Some("abc"), "{link}");
        }
        for other in ["", "</other/abc>; rel=next", "</other/abc>", "other"] {
            assert_eq!(token(&[ASKED, ("link", other)]), None, "{other}");
        }
        let twice = "</receipts/a>; rel=urn:ietf:params:push:receipt";
        for wrong in [
            "<https://elsewhere.example/>; rel=\"urn:ietf:params:push:receipt\"",
            "<>; rel=\"urn:ietf:params:push:receipt\"",
            "</receipts/abc>; rel=next",
            "</receipts/abc>",
            "https://push.example/receipts/abc",
            &format!("{twice}, {twice}"),
            &"x".repeat(LINK_BYTES_MAX + 1),
        ] {
            assert_eq!(wish(&[ASKED, ("link", wrong)]), Err(ReceiptError::UnknownLink), "{wrong}");
        }
    }

    #[test]
    fn no_hostile_token_or_link_panics_or_is_accepted() {
        let (urls, made) = (urls(), subscription());
        let path = urls.path(&made);
        let link = format!("<{path}>; rel=\"{RELATION}\"");
        let token = path.strip_prefix(BASE).unwrap().to_owned();
        fuzz("receipts", &[token, link], |bytes| {
            let text = String::from_utf8_lossy(bytes);
            let opened = urls.open(&text);
            assert!(opened.is_none() || opened.as_ref() == Some(&made), "forged: {opened:?}");
            let _read = targets(&text).count();
        });
    }
}
