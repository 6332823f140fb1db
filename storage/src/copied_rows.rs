//! The rows of every engine in one form, for the copy of a whole store and its comparison.
//!
//! What an engine derives from other rows is left out, such as the counts of waiting messages. So is the node of a router
//! record: no server runs during a copy, so no agent is connected to it.

use std::collections::BTreeSet;

use state_machine::{Chid, Message, Time, Uaid};

use crate::feeds::{FeedKey, FeedName, FeedState, FeedSyncId, FeedValue, Version};
use crate::notifications::Notification;
use crate::record_row::RecordRow;
use crate::store::Cursor;

/// Rows in one page.
pub const PAGE_ROWS_MAX: usize = 1000;

/// Bytes of values after which a page of a feed ends. Pages of other tables are bounded by the sizes of their rows.
pub const PAGE_BYTES_MAX: usize = 1 << 20;

/// A row of a table. Its hash has every field.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum CopiedRow {
    Record(RecordRow),
    Version(Uaid, Notification),
    Sequence(FeedState),
    /// Whether a key of a feed is published. The embedded engine derives it from the value's row.
    Key {
        feed: FeedName,
        key: FeedKey,
        version: Version,
        number: Option<FeedSyncId>,
    },
    /// The value of a key; none of a deleted one.
    Value {
        feed: FeedName,
        key: FeedKey,
        version: Version,
        number: Option<FeedSyncId>,
        value: Option<FeedValue>,
    },
    /// The receipt of a message that has none yet.
    ExpectedReceipt {
        feed: FeedName,
        key: FeedKey,
        deadline: Time,
    },
    Channels(Uaid, BTreeSet<Chid>),
    Message(Uaid, Message),
}

/// A part of a table.
#[derive(Default)]
pub struct CopiedPage {
    pub rows: Vec<CopiedRow>,
    /// Rows that no server can read, and that are left out.
    pub unreadable: u64,
    /// Rows that an agent has acked to autopush, and that are left out.
    pub acked: u64,
    pub next: Option<Cursor>,
}

impl CopiedPage {
    /// All rows that the page stands for.
    pub fn seen(&self) -> u64 {
        self.rows.len() as u64 + self.unreadable + self.acked
    }
}
