//! Starts the feeds of a server, and the broadcasts among them, with limits from the settings.

use std::sync::Arc;
use std::time::Duration;

use actors::FeedLimits;
use actors::broadcasts::{self, BroadcastLimits, BroadcastView};
use state_machine::Span;
use state_machine::feed::{ConsumerLimits, PublisherLimits};
use state_machine::store::PageLimit;
use tokio::sync::Semaphore;

use super::ServeError;
use crate::feeds::http::tokens::FeedTokens;
use crate::feeds::http::{FOLLOWED_BYTES_MAX, FeedRequestLimits, FeedService};
use crate::push::app::SharedState;
use crate::settings::keys::Keys;
use crate::settings::{Settings, StoreKind};

/// Poll interval of a followed feed if no other process writes to the store: practically never.
const POLL_ALONE: Span = Span::from_secs(24 * 60 * 60);

/// Starts the broadcast actor; returns when it has read the broadcasts in the store.
pub(super) async fn broadcasts(
    settings: &Settings,
    common: &SharedState,
) -> Result<BroadcastView, ServeError> {
    let limits = BroadcastLimits {
        spread: Span(settings.broadcast_fanout_ms),
        mailbox_max: settings.feed_mailbox_max,
    };
    let SharedState { feeds, clock, log, .. } = common;
    let broadcasts = broadcasts::start(feeds, limits, clock.clone(), log.clone()).await;
    broadcasts.map_err(ServeError::Broadcasts)
}

/// The state of feeds over HTTP.
pub(super) fn service(
    settings: &Settings,
    keys: &Keys,
    SharedState { feeds, clock, log, .. }: &SharedState,
) -> FeedService {
    let limits = FeedRequestLimits {
        value_bytes_max: settings.feed_value_bytes_max,
        page: PageLimit { rows: settings.feed_page_max, bytes: settings.feed_page_bytes_max },
        wait_max: Duration::from_secs(settings.feed_wait_max_s),
        keepalive: Duration::from_secs(settings.feed_keepalive_s),
        body_timeout: Duration::from_millis(settings.request_body_timeout_ms),
    };
    FeedService {
        feeds: feeds.clone(),
        tokens: FeedTokens::derive(keys, settings.feed_tokens_epoch),
        limits,
        pages: Arc::new(Semaphore::new(settings.feed_pages_max)),
        clock: clock.clone(),
        log: log.clone(),
    }
}

pub(super) fn limits(settings: &Settings) -> FeedLimits {
    let poll = match settings.store {
        StoreKind::Embedded => POLL_ALONE,
        StoreKind::DynamoDb => Span(settings.feed_poll_ms),
    };
    let retry = Span(settings.feed_retry_ms);
    let bytes = settings.feed_page_bytes_max.min(FOLLOWED_BYTES_MAX);
    let rows = settings.feed_page_max;
    FeedLimits {
        publisher: PublisherLimits { batch_max: settings.feed_batch_max, retry, poll },
        consumer: ConsumerLimits { page: PageLimit { rows, bytes }, retry },
        feeds_open_max: settings.feeds_open_max,
        keys_max: settings.feed_keys_max,
        followers_max: settings.feed_followers_max,
        sweep: Span::from_secs(settings.feed_sweep_s),
        tombstones_keep: Some(Span::from_secs(settings.feed_tombstones_keep_s))
            .filter(|keep| keep.0 > 0),
        mailbox_max: settings.feed_mailbox_max,
    }
}
