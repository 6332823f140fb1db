//! What the publisher and the followers of a node share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use slog::Logger;
use state_machine::Span;
use state_machine::feed::{ConsumerLimits, PublisherLimits};
use storage::FeedTables;
use tokio::sync::Semaphore;

use super::head_watch::HeadWatch;
use crate::clock::Clock;
use crate::observe::FeedStats;

/// The limits of a node's feeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedLimits {
    /// Page size and retries of the publisher.
    pub publisher: PublisherLimits,
    /// Page size and retries of a follower.
    pub consumer: ConsumerLimits,
    /// Feeds with followers, and feeds without followers that are published, each at most so many
    /// at once. A further write is durable, and a sweep publishes it when there is room.
    pub feeds_open_max: usize,
    /// Keys of one feed, deleted ones included.
    pub keys_max: u64,
    /// Followers of all feeds together, without those of the node itself.
    pub followers_max: usize,
    /// Time between two sweeps, which publish what other nodes left unpublished.
    pub sweep: Span,
    /// How long a deleted key is kept for consumers, at least; for ever if none.
    pub tombstones_keep: Option<Span>,
    /// The bound of the publisher's mailbox, in messages.
    pub mailbox_max: usize,
}

pub(super) struct FeedsShared {
    pub(super) store: Arc<dyn FeedTables>,
    pub(super) clock: Clock,
    pub(super) limits: FeedLimits,
    pub(super) heads: HeadWatch,
    pub(super) followers: Arc<Semaphore>,
    /// Followers that are behind, see [`FeedStats::followers_behind`].
    pub(super) followers_behind: AtomicUsize,
    /// The publisher's mailbox was full: it is to look at all feeds.
    pub(super) is_overrun: AtomicBool,
    /// Active feeds, see [`FeedStats::open`].
    pub(super) open: AtomicUsize,
    /// Counts removed tombstones, see [`FeedStats::forgotten`].
    pub(super) forgotten: AtomicU64,
    pub(super) log: Logger,
}

impl FeedsShared {
    pub(super) fn new(
        store: Arc<dyn FeedTables>,
        clock: Clock,
        limits: FeedLimits,
        log: Logger,
    ) -> Self {
        Self {
            store,
            clock,
            heads: HeadWatch::default(),
            followers: Arc::new(Semaphore::new(limits.followers_max)),
            followers_behind: AtomicUsize::new(0),
            limits,
            is_overrun: AtomicBool::new(false),
            open: AtomicUsize::new(0),
            forgotten: AtomicU64::new(0),
            log,
        }
    }

    pub(super) fn stats(&self) -> FeedStats {
        let Self { limits, followers, followers_behind, heads, open, forgotten, .. } = self;
        FeedStats {
            followers: limits.followers_max - followers.available_permits(),
            followers_behind: followers_behind.load(Ordering::Relaxed),
            followed: heads.len(),
            open: open.load(Ordering::Relaxed),
            forgotten: forgotten.load(Ordering::Relaxed),
        }
    }
}
