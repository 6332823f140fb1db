//! One publishing transaction as data: the four steps of docs/sources.md#feed-sequences-note.

use super::{FeedSyncId, PublishResult, Sequence, UnpublishedKey, Version};

/// Numbers for keys that waited, all of them or none.
///
/// It is made of what was read and writes only where that is still true: the sequence has the version that was read,
/// and each key's row too. So two publishers that read the same sequence cannot both write, and a key that changed
/// in between keeps waiting.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Publication {
    /// The sequence's row as it was read: it must still have this version.
    pub read: Sequence,
    /// The sequence's row as it is written.
    pub sequence: Sequence,
    /// What each key is given.
    pub assignments: Vec<Assignment>,
}

/// The number of one key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Assignment {
    /// The key, and the version that its row must still have.
    pub pending: UnpublishedKey,
    /// The row's version as it is written.
    pub version: Version,
    /// The number.
    pub feed_sync_id: FeedSyncId,
}

impl Publication {
    /// Gives the keys the numbers that follow the sequence's, in the order they have here. None where no key waits.
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

    /// What it brings once it is written. `is_all` says that no key waits behind these.
    pub fn outcome(&self, is_all: bool) -> PublishResult {
        let last = self.assignments.last().map(|last| last.pending.key.clone());
        PublishResult {
            count: self.assignments.len(),
            head: self.sequence.value,
            next: last.filter(|_| !is_all),
        }
    }
}
