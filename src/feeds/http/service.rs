//! What all requests for feeds share: the tokens, the limits, and the feeds themselves.

use std::sync::Arc;
use std::time::Duration;

use actix_web::http::header::HeaderMap;
use actors::{Clock, FeedSubscription, Feeds};
use slog::{Logger, debug, warn};
use state_machine::feed::{FeedName, FeedSyncId};
use state_machine::store::PageLimit;
use storage::StoreError;
use tokio::sync::Semaphore;

use super::error::FeedError;
use super::tokens::{FeedTokens, Grant};
use crate::push::authorization::authorization;
use crate::settings::Settings;
use crate::settings::keys::Keys;

/// A page with more bytes of values is large: a smaller one mostly fits into the kernel's buffer at once. Also the page
/// size for followers, of which each may keep one unread page in memory; one update is always read.
pub const FOLLOWED_BYTES_MAX: usize = 64 * 1024;

pub struct FeedService {
    pub feeds: Feeds,
    pub tokens: FeedTokens,
    pub limits: FeedRequestLimits,
    /// A permit for each large page that is being sent.
    pub pages: Arc<Semaphore>,
    /// The clock by which tokens expire.
    pub clock: Clock,
    pub log: Logger,
}

/// The limits of one request.
#[derive(Debug, Clone, Copy)]
pub struct FeedRequestLimits {
    pub value_bytes_max: usize,
    pub page: PageLimit,
    /// How long a request may wait for an update.
    pub wait_max: Duration,
    /// How long an event stream may be silent.
    pub keepalive: Duration,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
}

impl FeedService {
    pub fn new(settings: &Settings, keys: &Keys, feeds: Feeds, clock: Clock, log: Logger) -> Self {
        let limits = FeedRequestLimits {
            value_bytes_max: settings.feed_value_bytes_max,
            page: PageLimit { rows: settings.feed_page_max, bytes: settings.feed_page_bytes_max },
            wait_max: Duration::from_secs(settings.feed_wait_max_s),
            keepalive: Duration::from_secs(settings.feed_keepalive_s),
            body_timeout: Duration::from_millis(settings.request_body_timeout_ms),
        };
        let tokens = FeedTokens::derive(keys, settings.feed_tokens_epoch);
        let pages = Arc::new(Semaphore::new(settings.feed_pages_max));
        Self { feeds, tokens, limits, pages, clock, log }
    }

    /// Checks the token of a request against the feed in its path.
    pub(super) fn admit(
        &self,
        headers: &HeaderMap,
        feed: Option<&str>,
    ) -> Result<Grant, FeedError> {
        // RFC 6750 §2.1. A token in the URL is not accepted: logs would have it.
        let token = authorization(headers, &["bearer"]).ok_or(FeedError::NoToken)?;
        let grant = self.tokens.check(token, self.clock.now())?;
        let is_its_feed = feed == Some(grant.feed.as_str());
        if is_its_feed { Ok(grant) } else { Err(FeedError::OtherFeed) }
    }

    /// Logs a failure of the store; the answer to the request.
    pub(super) fn failed(&self, feed: &FeedName, error: &StoreError) -> FeedError {
        match error {
            StoreError::Busy => {
                debug!(self.log, "the store is too busy for a feed"; "feed" => %feed);
            }
            error => {
                warn!(self.log, "the store failed for a feed"; "feed" => %feed, "error" => %error);
            }
        }
        FeedError::Unavailable
    }

    pub(super) fn follow(
        &self,
        feed: FeedName,
        after: FeedSyncId,
    ) -> Result<FeedSubscription, FeedError> {
        self.feeds.subscribe(feed, after).map_err(|_| FeedError::TooManyFollowers)
    }
}
