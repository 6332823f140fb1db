//! The operations that the state machines submit to a store, and their answers. `storage::store`
//! defines their meaning.

pub use crate::paging::{Cursor, PageLimit, StoreFailed};

use std::collections::BTreeSet;

use crate::bridge::BridgeRecipient;
use crate::ids::{Chid, MessageId, NodeId, Uaid};
use crate::message::{Message, MessageKey};
use crate::month::Month;
use crate::receipt::AckCode;
use crate::record::{LastConnect, NodeBinding, RouterRecord, RouterType};
use crate::time::Time;

/// The write of a connection node when a user agent connects.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Registration {
    pub uaid: Uaid,
    pub router_type: RouterType,
    pub node: NodeId,
    /// The time of the connection, by that node's clock.
    pub connected_at: Time,
    /// The key of that hour in the last-connect index.
    pub last_connect: LastConnect,
    /// Create a record with this `curmonth` if there is none. Without it an unknown uaid stays
    /// unknown.
    pub create_in: Option<Month>,
}

/// The registration of a user agent behind a bridge.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BridgedRegistration {
    pub uaid: Uaid,
    pub recipient: BridgeRecipient,
    /// The time of the registration. It orders the registrations of an agent.
    pub connected_at: Time,
    /// The key of that hour in the last-connect index.
    pub last_connect: LastConnect,
    /// Create a record with this `curmonth` if there is none. Without it an unknown uaid stays
    /// unknown.
    pub create_in: Option<Month>,
}

/// The result of a registration.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RegisterResult {
    /// The new record, and the previous binding of the agent.
    Registered(RouterRecord, Option<NodeBinding>),
    /// The uaid has no record, and none was created.
    UnknownAgent,
    /// The record has this `connected_at`, which is not older. Nothing was written.
    Superseded(Time),
}

/// The result of storing a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stored {
    /// The message is durable.
    Done,
    /// A message of the same topic with this greater id waits. Nothing was written: a push that was not answered yet
    /// may be the later one of both, whatever the clocks say, and takes an id above it.
    Outranked(MessageId),
    /// The channel is not registered in this month's table. Nothing was written.
    NoSuchChannel,
    /// So many messages wait that this one does not fit. It was not stored.
    Full(FullScope),
}

/// Whose bound of waiting messages is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FullScope {
    /// That of all messages of the user agent.
    User,
    /// That of one channel.
    Channel,
}

/// Part of a user agent's stored messages, in the order of the table.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Page {
    pub messages: Vec<Message>,
    /// The position after this page, if more messages may follow it.
    pub next: Option<Cursor>,
}

/// The move of one user agent from one month to another: by its current connection, or, for an agent behind a bridge,
/// by any node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MonthStep {
    pub uaid: Uaid,
    /// The node of the record. None for an agent behind a bridge.
    pub node: Option<NodeId>,
    /// The `connected_at` of the record.
    pub connected_at: Time,
    pub from: Month,
    pub to: Month,
    /// The key of the hour of the move in the last-connect index.
    pub last_connect: LastConnect,
}

/// One operation of a connection on the store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum StoreOp {
    /// Write the router record of an agent that connected.
    Register(Registration),
    /// Read the registered channels.
    ReadChannels { uaid: Uaid, month: Month },
    /// Read a page of stored messages.
    Fetch {
        uaid: Uaid,
        month: Month,
        /// Only messages after this position.
        after: Option<Cursor>,
        limit: PageLimit,
        /// Messages that expired before this time are left out.
        now: Time,
    },
    /// Read a page of the SimplePush versions that wait.
    FetchVersions {
        uaid: Uaid,
        /// Only those after this position.
        after: Option<Cursor>,
        limit: PageLimit,
        /// When the read began.
        now: Time,
    },
    /// Delete messages that were acked or have expired.
    Delete {
        uaid: Uaid,
        /// The months whose tables may have the messages.
        months: Vec<Month>,
        messages: Vec<MessageKey>,
        /// The ack codes of those among them that may want a receipt.
        acks: Vec<(MessageId, AckCode)>,
    },
    /// Count that a connection has offered messages without an ack. A row that is missing stays missing.
    RecordOffers { uaid: Uaid, month: Month, messages: Vec<MessageKey> },
    /// Register channels of an agent.
    AddChannels { uaid: Uaid, month: Month, channels: BTreeSet<Chid> },
    /// Register channels of an agent that has no row in the month.
    CreateChannels { uaid: Uaid, month: Month, channels: BTreeSet<Chid> },
    /// Unregister a channel of an agent.
    RemoveChannel { uaid: Uaid, months: Vec<Month>, chid: Chid },
    /// Unregister a channel of a SimplePush agent, and delete the version that waits.
    RemoveChannelAndVersion { uaid: Uaid, months: Vec<Month>, chid: Chid },
    /// Make `to` the month that messages are stored in, and record the unfinished move.
    UpdateMonth(MonthStep),
    /// Record that the move is finished.
    FinishMove(MonthStep),
    /// Move the remaining messages of the old month to the new month.
    MoveMessages { uaid: Uaid, from: Month, to: Month },
    /// Remove the node from the record if the record still has this binding.
    ClearNode {
        uaid: Uaid,
        /// The binding that the record must still have.
        binding: NodeBinding,
    },
}

/// The answer of the store to a [`StoreOp`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum StoreAnswer {
    /// The answer to [`StoreOp::Register`].
    Registered(RegisterResult),
    /// The answer to [`StoreOp::ReadChannels`]: none if the agent never registered a channel in
    /// this month, or the month has no table.
    Channels(Option<BTreeSet<Chid>>),
    /// The answer to [`StoreOp::Fetch`] and [`StoreOp::FetchVersions`].
    Fetched(Page),
    /// The answer to [`StoreOp::Delete`].
    Deleted,
    /// The answer to [`StoreOp::RecordOffers`].
    OffersRecorded,
    /// The answer to [`StoreOp::AddChannels`] and [`StoreOp::CreateChannels`].
    ChannelsAdded,
    /// The answer to [`StoreOp::RemoveChannel`] and [`StoreOp::RemoveChannelAndVersion`].
    ChannelRemoved,
    /// The answer to [`StoreOp::UpdateMonth`]: whether the record still had this connection's
    /// binding.
    MonthUpdated(bool),
    /// The answer to [`StoreOp::FinishMove`]: whether the record still had this connection's
    /// binding.
    MoveFinished(bool),
    /// The answer to [`StoreOp::MoveMessages`].
    Moved,
    /// The answer to [`StoreOp::ClearNode`]: whether the record still had that binding.
    NodeCleared(bool),
    /// The operation was not submitted, because the agent or its address is over a limit. Only a [`StoreOp::Register`]
    /// that creates a record and the [`StoreOp::AddChannels`] of a register get this answer.
    OverLimit,
    /// The answer to any write that the store has no space for: nothing was written.
    NoSpace,
}

impl StoreOp {
    /// Whether it changes rows.
    pub fn is_write(&self) -> bool {
        !matches!(self, Self::ReadChannels { .. } | Self::Fetch { .. } | Self::FetchVersions { .. })
    }
}
