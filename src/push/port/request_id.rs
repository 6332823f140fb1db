//! The id of a request, in its answer and in the log.

use std::sync::atomic::{AtomicU64, Ordering};

use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use uuid::Uuid;

pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest id of a proxy that is kept.
const PROXY_ID_BYTES_MAX: usize = 64;

/// Makes ids that no other process makes.
pub struct RequestIds {
    prefix: String,
    next: AtomicU64,
}

impl Default for RequestIds {
    fn default() -> Self {
        let random = Uuid::new_v4().simple().to_string();
        Self { prefix: random[..8].to_owned(), next: AtomicU64::new(1) }
    }
}

impl RequestIds {
    /// The id that a proxy gave the request, if it is short and of letters, digits, `.`, `_` and `-`. Otherwise a new
    /// one.
    pub fn of(&self, headers: &HeaderMap) -> HeaderValue {
        let is_safe = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
        let given = headers.get(X_REQUEST_ID).filter(|id| {
            let bytes = id.as_bytes();
            (1..=PROXY_ID_BYTES_MAX).contains(&bytes.len()) && bytes.iter().all(is_safe)
        });
        given.cloned().unwrap_or_else(|| {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let id = format!("{}-{number:x}", self.prefix);
            HeaderValue::try_from(id).expect("hex digits and a dash are valid")
        })
    }
}

/// The id of a request for the log, once the request has passed the server's middleware, which has set it.
pub fn request_id(headers: &HeaderMap) -> &str {
    headers.get(X_REQUEST_ID).and_then(|id| id.to_str().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_safe_id_of_a_proxy_is_kept_and_any_other_is_replaced() {
        let ids = RequestIds::default();
        let of = |id: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(X_REQUEST_ID, HeaderValue::from_bytes(id.as_bytes()).unwrap());
            ids.of(&headers).to_str().unwrap().to_owned()
        };
        assert_eq!(of("7f.A_b-9"), "7f.A_b-9");
        for (place, unsafe_id) in ["", "a b", "a\"b", "ä", &"a".repeat(65)].into_iter().enumerate()
        {
            assert_eq!(of(unsafe_id), format!("{}-{:x}", ids.prefix, place + 1));
        }
        assert_ne!(RequestIds::default().prefix, ids.prefix);
    }
}
