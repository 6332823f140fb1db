//! Feeds that lose no update (docs/sources.md#feed-sequences-note).
//!
//! A feed is a table of keys. One transaction assigns the next number of the feed's sequence, the
//! `feed_sync_id`, to each changed key. A consumer stores the last number it has seen, and receives
//! the last state of each key at least once.
//!
//! ```text
//!   write, republish, delete        publish                         fetch after a cursor
//!   version + 1, number none  ──►   sequence + 1, version + 1  ──►  numbers in (cursor, head], ascending
//!   (pending)                       (numbered)
//! ```
//!
//! - [`Table`] models the table of a feed in memory: tests compare the storage engines with it, and
//!   model checkers explore it.
//! - [`Publication`] is one publishing transaction: what it read, what it writes, and its
//!   condition.
//! - [`Publisher`] decides when to publish. [`Consumer`] decides when to fetch, and keeps the
//!   cursor.
//!
//! Architecture Invariant: a key has at most one number, and a number at most one key. A changed
//! key gives up its old number, so a consumer at a number has seen every update that remains before
//! it.
//!
//! Architecture Invariant: no number is computed from the numbers in use (`MAX + 1`). The key with
//! the greatest number may have given it up. The same number would then be assigned twice, and
//! consumers past it would miss the second update.

pub mod consumer;
pub mod publication;
pub mod publisher;
pub mod reserved;
pub mod sequence;
pub mod table;
mod text;
mod update;

pub use consumer::{Consumer, ConsumerEffect, ConsumerEnd, ConsumerEvent, ConsumerLimits};
pub use publication::{Assignment, Publication, PublishResult, UnpublishedKey};
pub use publisher::{Publisher, PublisherEffect, PublisherEvent, PublisherLimits, PublisherWait};
pub use sequence::{FeedMark, Forgotten, Sequence};
pub use table::Table;
pub use text::{FeedKey, FeedName, FeedTextError, FeedValue};
pub use update::{FeedPage, FeedSyncId, Update, Version, WriteResult};
