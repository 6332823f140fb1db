//! One publishing transaction as data: the four steps of docs/sources.md#feed-sequences-note.

use super::sequence::Sequence;
use super::text::FeedKey;
use super::update::{FeedSyncId, Version};

/// The numbers for some keys, assigned all together or not at all.
///
/// The write has a condition: the sequence and the row of each key still have the versions that
/// were read. So of two publishers that read the same sequence only one writes, and a key that
/// changed in between gets its number later.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Publication {
    /// The sequence's row as it was read. The write fails if its version has changed.
    pub read: Sequence,
    /// The sequence's row as it is written.
    pub sequence: Sequence,
    /// The number of each key, in ascending order.
    pub assignments: Vec<Assignment>,
}

/// The number of one key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Assignment {
    /// The key, with the row version that the write expects.
    pub pending: UnpublishedKey,
    /// The row's version as it is written.
    pub version: Version,
    pub feed_sync_id: FeedSyncId,
}

/// A key that has no number yet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnpublishedKey {
    pub key: FeedKey,
    /// The version of its row when it was read.
    pub version: Version,
}

/// The result of a publication.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PublishResult {
    /// The number of keys that got a number.
    pub count: usize,
    /// The feed's greatest number now, including the publications of other nodes.
    pub head: FeedSyncId,
    /// The last key that was read, if more keys without a number may follow it.
    pub next: Option<FeedKey>,
}

impl Publication {
    /// Assigns the next numbers of the sequence to the keys, in the order of the list. None if the
    /// list is empty.
    pub fn of(read: Sequence, pending: Vec<UnpublishedKey>) -> Option<Self> {
        if pending.is_empty() {
            return None;
        }
        let value = read.value.plus(pending.len());
        let sequence = Sequence { value, version: read.version + 1, ..read };
        let assign = |(at, pending): (usize, UnpublishedKey)| Assignment {
            version: pending.version.next(),
            feed_sync_id: read.value.plus(at + 1),
            pending,
        };
        let assignments = pending.into_iter().enumerate().map(assign).collect();
        Some(Self { read, sequence, assignments })
    }

    /// The result once the publication is written. `is_all` means that no key without a number
    /// follows these.
    pub fn outcome(&self, is_all: bool) -> PublishResult {
        let last = self.assignments.last().map(|last| last.pending.key.clone());
        PublishResult {
            count: self.assignments.len(),
            head: self.sequence.value,
            next: last.filter(|_| !is_all),
        }
    }
}
