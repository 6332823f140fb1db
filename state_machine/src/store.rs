//! What the machines ask of a store, and what it answers. `storage::store` says what each means.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::ids::{Chid, NodeId, Uaid};
use crate::message::{Message, MessageKey};
use crate::month::Month;
use crate::record::{LastConnect, NodeBinding, RouterRecord, RouterType};
use crate::time::Time;

/// What a connection node writes when a user agent connects.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Registration {
    /// Who connected.
    pub uaid: Uaid,
    /// How it is reached.
    pub router_type: RouterType,
    /// The node it connected to.
    pub node: NodeId,
    /// When.
    pub connected_at: Time,
    /// The index key of that hour.
    pub last_connect: LastConnect,
    /// Make a record with this `curmonth` if there is none; otherwise an unknown uaid stays unknown.
    pub create_in: Option<Month>,
}

/// What became of a registration.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RegisterResult {
    /// Written: the record as it now stands, and where the agent was connected by the one before it.
    Registered(RouterRecord, Option<NodeBinding>),
    /// There is no record of this uaid, and none was to be made.
    UnknownAgent,
    /// The record has this `connected_at`, which is not older: nothing was written.
    Superseded(Time),
}

/// What became of storing a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stored {
    /// It is on disk, or was already, or a newer message of its topic is there in its place.
    Done,
    /// The channel is not registered in this month's table; nothing was written.
    NoSuchChannel,
}

/// Some of a user agent's waiting messages, in the order of the table.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Page {
    /// The messages.
    pub messages: Vec<Message>,
    /// Where to go on: there may be more messages behind it.
    pub next: Option<Cursor>,
}

/// How far a read of several pages has come: a text of the engine's own making. Nobody else
/// looks into it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Cursor(Arc<str>);

/// What a page is bounded by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageLimit {
    /// At most this many messages; at least 1.
    pub rows: usize,
    /// Bytes of payload after which no further message is added; the first always is.
    pub bytes: usize,
}

/// One user agent's move from a month to another, by the connection that does it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MonthStep {
    /// Who moves.
    pub uaid: Uaid,
    /// The node it is connected to.
    pub node: NodeId,
    /// When it connected there.
    pub connected_at: Time,
    /// The month moved away from.
    pub from: Month,
    /// The month moved to.
    pub to: Month,
    /// The index key of the hour of the move.
    pub last_connect: LastConnect,
}

/// One thing a connection asks of the store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum StoreOp {
    /// Write the router record of an agent that connected.
    Register(Registration),
    /// Read the registered channels.
    ReadChannels {
        /// Whose channels.
        uaid: Uaid,
        /// In which month's table.
        month: Month,
    },
    /// Read waiting messages.
    Fetch {
        /// Whose messages.
        uaid: Uaid,
        /// From which month's table.
        month: Month,
        /// Only those behind the page that ended there.
        after: Option<Cursor>,
        /// How many.
        limit: PageLimit,
        /// Without those that expired before.
        now: Time,
    },
    /// Delete messages that are done with.
    Delete {
        /// Whose messages.
        uaid: Uaid,
        /// In which months' tables they may be.
        months: Vec<Month>,
        /// Which.
        messages: Vec<MessageKey>,
    },
    /// Register channels.
    AddChannels {
        /// Whose channels.
        uaid: Uaid,
        /// In which month's table.
        month: Month,
        /// Which.
        channels: BTreeSet<Chid>,
    },
    /// Unregister a channel.
    RemoveChannel {
        /// Whose channel.
        uaid: Uaid,
        /// In which months' tables.
        months: Vec<Month>,
        /// Which.
        chid: Chid,
    },
    /// Make `to` the month that messages are stored in, and note the unfinished move.
    UpdateMonth(MonthStep),
    /// Note that the move is finished.
    FinishMove(MonthStep),
    /// Move what still waits in the old month to the new one.
    MoveMessages {
        /// Whose messages.
        uaid: Uaid,
        /// The old month.
        from: Month,
        /// The new one.
        to: Month,
    },
    /// Remove the node from the record if it still says that the agent is connected at this place.
    ClearNode {
        /// Whose record.
        uaid: Uaid,
        /// The place.
        binding: NodeBinding,
    },
}

/// What the store answered.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum StoreAnswer {
    /// To [`StoreOp::Register`].
    Registered(RegisterResult),
    /// To [`StoreOp::ReadChannels`].
    Channels(Option<BTreeSet<Chid>>),
    /// To [`StoreOp::Fetch`].
    Fetched(Page),
    /// To [`StoreOp::Delete`].
    Deleted,
    /// To [`StoreOp::AddChannels`].
    ChannelsAdded,
    /// To [`StoreOp::RemoveChannel`].
    ChannelRemoved,
    /// To [`StoreOp::UpdateMonth`]: whether the record was still this connection's.
    MonthUpdated(bool),
    /// To [`StoreOp::FinishMove`]: whether the record was still this connection's.
    MoveFinished(bool),
    /// To [`StoreOp::MoveMessages`].
    Moved,
    /// To [`StoreOp::ClearNode`]: whether the record still said so.
    NodeCleared(bool),
}

/// The store did not do it, or cannot say whether it did; asking again is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StoreFailed;

impl Cursor {
    /// Remembers a place.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text, for the engine that made it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
