//! The rows of both engines in one form, for the copy of a whole store and its comparison.
//!
//! What an engine derives from other rows is left out, such as the counts of waiting messages. So is the node of a router
//! record: no server runs during a copy, so no agent is connected to it.

use std::collections::BTreeSet;

use state_machine::{
    BridgeRecipient, Chid, LastConnect, Message, Month, NodeBinding, NodeId, RouterRecord,
    RouterType, Time, Uaid,
};

use crate::feeds::{FeedKey, FeedName, FeedState, FeedSyncId, FeedValue, Version};
use crate::notifications::Notification;
use crate::store::Cursor;

/// Rows in one page.
pub const PAGE_ROWS_MAX: usize = 1000;

/// Bytes of values after which a page of a feed ends. Pages of other tables are bounded by the sizes of their rows.
pub const PAGE_BYTES_MAX: usize = 1 << 20;

/// A row of a table. Its hash has every field.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Row {
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

/// A router record of any type, also of one that is not served.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RecordRow {
    pub uaid: Uaid,
    pub router_type: String,
    /// None of an agent that no bridge reaches, and if it cannot be read.
    pub recipient: Option<BridgeRecipient>,
    /// None in a copy.
    pub node: Option<NodeId>,
    pub connected_at: Time,
    pub last_connect: LastConnect,
    /// None if it is missing or cannot be read, which only a table in DynamoDB has.
    pub curmonth: Option<Month>,
    pub oldmonth: Option<Month>,
}

/// A part of a table.
#[derive(Default)]
pub struct RowPage {
    pub rows: Vec<Row>,
    /// Rows that no server can read, and that are left out.
    pub unreadable: u64,
    /// Rows that an agent has acked to autopush, and that are left out.
    pub acked: u64,
    pub next: Option<Cursor>,
}

impl RowPage {
    /// All rows that the page stands for.
    pub fn seen(&self) -> u64 {
        self.rows.len() as u64 + self.unreadable + self.acked
    }
}

impl RecordRow {
    pub fn binding(&self) -> Option<NodeBinding> {
        let node = self.node.clone()?;
        Some(NodeBinding { node, connected_at: self.connected_at })
    }

    pub fn has_served_type(&self) -> bool {
        self.recipient.is_some() || RouterType::parse(&self.router_type).is_some()
    }

    /// The record for a server. None if it counts as none.
    pub fn served(self) -> Option<RouterRecord> {
        let Self { uaid, node, connected_at, last_connect, oldmonth, .. } = self;
        let bridge = self.recipient.map(|recipient| RouterType::Bridge(Box::new(recipient)));
        let router_type = RouterType::parse(&self.router_type).or(bridge)?;
        let curmonth = self.curmonth?;
        Some(RouterRecord {
            uaid,
            router_type,
            node,
            connected_at,
            last_connect,
            curmonth,
            oldmonth,
        })
    }
}

impl From<RouterRecord> for RecordRow {
    fn from(record: RouterRecord) -> Self {
        let RouterRecord { uaid, router_type, node, connected_at, last_connect, .. } = record;
        Self {
            uaid,
            router_type: router_type.as_str().to_owned(),
            recipient: router_type.recipient().cloned(),
            node,
            connected_at,
            last_connect,
            curmonth: Some(record.curmonth),
            oldmonth: record.oldmonth,
        }
    }
}
