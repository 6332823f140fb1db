//! The feeds of a node: written, published and followed through [`Feeds`].
//!
//! ```text
//!   write ──► store ──► mark_dirty ──► PublisherActor ──► publish ──► store
//!                                      │ head
//!                                      ▼
//!   FeedSubscription::next ◄── page ◄── store  heads, one a followed feed
//! ```
//!
//! - [`publisher`]: one actor a node, which drives a `state_machine::feed::Publisher` for each feed
//!   that has something
//!   to publish or is followed.
//! - [`subscription`]: drives one `state_machine::feed::Consumer`.
//! - [`shared_page`]: one read of a page for all followers at the same cursor.
//!
//! Architecture Invariant: a write is durable before the publisher is notified. What it was not
//! notified of, or what a killed node left unpublished, the sweep publishes.

mod head_watch;
mod node_feeds;
pub mod publisher;
mod shared;
pub mod shared_page;
pub mod subscription;
mod sweep;
mod tombstones;

use std::sync::Arc;

use slog::Logger;
use storage::FeedTables;

use crate::clock::Clock;
use crate::mailbox::BoundedAddr;
pub use node_feeds::Feeds;
use publisher::PublisherActor;
pub use shared::FeedLimits;
use shared::FeedsShared;
pub use shared_page::SharedPage;
pub(crate) use subscription::pages;
pub use subscription::{FeedSubscription, SubscriptionError, TooManyFollowers};

impl Feeds {
    /// Starts the publisher on the current arbiter. It begins with a sweep of all feeds.
    pub fn start(
        store: Arc<dyn FeedTables>,
        clock: Clock,
        limits: FeedLimits,
        log: Logger,
    ) -> Self {
        let shared = Arc::new(FeedsShared::new(store, clock, limits, log));
        let publisher = BoundedAddr::start(PublisherActor::new(Arc::clone(&shared)));
        let feeds = Self { shared, publisher: Arc::new(publisher) };
        let FeedLimits { tombstones_keep, sweep, .. } = feeds.shared.limits;
        if let Some(keep) = tombstones_keep {
            actix::spawn(tombstones::run(feeds.clone(), keep, sweep));
        }
        feeds
    }
}
