//! What bounds the feeds of a node.

use state_machine::Span;
use state_machine::feed::{ConsumerLimits, PublisherLimits};

/// What bounds the feeds of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedLimits {
    /// How a feed is published.
    pub publisher: PublisherLimits,
    /// How a follower reads.
    pub consumer: ConsumerLimits,
    /// Feeds that may be followed at once; and feeds that may be published at once which nobody follows. A write to
    /// one more is as durable as any: it is published when there is room, by a sweep.
    pub feeds_open_max: usize,
    /// Keys that one feed may have, those that were deleted too.
    pub keys_max: u64,
    /// Followers at once.
    pub followers_max: usize,
    /// How often all feeds are looked at for what other nodes left unpublished.
    pub sweep: Span,
    /// Messages that the publisher's mailbox holds.
    pub mailbox_max: usize,
}
