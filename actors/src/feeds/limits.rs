//! The limits of a node's feeds.

use state_machine::Span;
use state_machine::feed::{ConsumerLimits, PublisherLimits};

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
    /// The bound of the publisher's mailbox, in messages.
    pub mailbox_max: usize,
}
