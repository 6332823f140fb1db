//! The row that numbers the keys of a feed, and says what the feed has forgotten.

use serde::{Deserialize, Serialize};

use super::update::{FeedSyncId, Version};
use crate::time::Time;

/// The row of a feed in the table `sequences`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Sequence {
    /// The greatest number that is assigned.
    #[serde(rename = "head")]
    pub value: FeedSyncId,
    /// The number of publications: the optimistic lock.
    #[serde(skip)]
    pub version: u64,
    /// The number of keys of the feed, including the deleted ones.
    pub keys: u64,
    /// Entries up to this number are forgotten. A consumer behind it starts over.
    #[serde(default, skip_serializing_if = "FeedSyncId::is_none")]
    pub horizon: FeedSyncId,
    /// The greatest version of a forgotten entry. A new key begins above it, so that the versions
    /// of a key that was forgotten still grow.
    #[serde(skip)]
    pub forgotten: Version,
    #[serde(skip)]
    pub mark: Option<FeedMark>,
}

/// The number that a feed had reached at some time: every entry up to it is at least as old.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FeedMark {
    pub number: FeedSyncId,
    pub at: Time,
}

/// The result of one step of forgetting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Forgotten {
    /// The number of entries that were removed.
    pub count: usize,
    /// Whether no entry is left at or below the horizon.
    pub is_all: bool,
}
