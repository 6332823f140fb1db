//! The operations that the state machines submit to a store, and their answers: a part of the contract of each engine,
//! with the general rules of `storage::store`.

pub use crate::paging::{Cursor, PageLimit, StoreFailed};

use std::collections::BTreeSet;

use crate::bridge::BridgeRecipient;
use crate::feed::FeedName;
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

impl Registration {
    /// The record that it creates in a month.
    pub fn record(self, curmonth: Month) -> RouterRecord {
        let Self { uaid, router_type, node, connected_at, last_connect, create_in: _ } = self;
        let (node, oldmonth) = (Some(node), None);
        RouterRecord { uaid, router_type, node, connected_at, last_connect, curmonth, oldmonth }
    }
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

/// One operation on the store, by a connection or for an agent that has none.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum StoreOp {
    /// Write the router record of an agent that connected.
    ///
    /// Node, `connected_at`, `last_connect` and router type are written, if the record there is older (`connected_at`
    /// strictly less). `curmonth` and `oldmonth` of an existing record stay. A record that a
    /// delivery does not get, and one of another router type, stays as it is: the agent is unknown.
    Register(Registration),
    /// Read the registered channels.
    ReadChannels { uaid: Uaid, month: Month },
    /// Read a page of stored messages.
    ///
    /// The messages are those behind the page that ended at `after`. The order is the table's own; messages without a
    /// topic are ordered by their ids. A message that is stored from the first page to the last is in one of them. A
    /// month without a table has none.
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
    ///
    /// Their order is that of the channels. They are in a table without months.
    FetchVersions {
        uaid: Uaid,
        /// Only those after this position.
        after: Option<Cursor>,
        limit: PageLimit,
        /// When the read began.
        now: Time,
    },
    /// Delete messages that were acked or have expired.
    ///
    /// Each is deleted only if the row still holds that very message: the replacement of a topic's message stays. A month without a table is skipped. A SimplePush version is deleted with
    /// the lower ones of its channel.
    ///
    /// An acked message whose row names a receipt has it before the row is gone: a crash in between leaves the row, and
    /// the next ack finds the receipt, and changes nothing, whatever its code. An ack after the receipt *expired*
    /// replaces it. Messages without a receipt are deleted first, and if that fails, no receipt is written yet.
    Delete {
        uaid: Uaid,
        /// The months whose tables may have the messages.
        months: Vec<Month>,
        messages: Vec<MessageKey>,
        /// The ack codes of those among them that may want a receipt.
        acks: Vec<(MessageId, AckCode)>,
    },
    /// Count that a connection has offered messages without an ack. A row that is missing stays missing.
    ///
    /// Each is counted only if the row still holds that very message. A row of other software may keep its value.
    RecordOffers { uaid: Uaid, month: Month, messages: Vec<MessageKey> },
    /// Register channels of an agent.
    ///
    /// They are added to those registered. An empty set creates the agent's row.
    AddChannels { uaid: Uaid, month: Month, channels: BTreeSet<Chid> },
    /// Register channels of an agent that has no row in the month.
    ///
    /// A row that exists stays as it is.
    CreateChannels { uaid: Uaid, month: Month, channels: BTreeSet<Chid> },
    /// Unregister a channel of an agent.
    ///
    /// It is removed in each of the months. A month without a table is skipped.
    RemoveChannel { uaid: Uaid, months: Vec<Month>, chid: Chid },
    /// Unregister a channel of a SimplePush agent, and delete the version that waits.
    ///
    /// The version is deleted after the channel is removed.
    RemoveChannelAndVersion { uaid: Uaid, months: Vec<Month>, chid: Chid },
    /// Make `to` the month that messages are stored in, and record the unfinished move.
    ///
    /// `curmonth` becomes `to`, `oldmonth` `from`, and `last_connect` is written, if the record still has `node` and
    /// `connected_at`. Without a node, the record must be one of an agent behind a bridge, with the `curmonth` `from` and no `oldmonth`.
    /// After a lost reply the answer may be false although the record was written.
    UpdateMonth(MonthStep),
    /// Record that the move is finished.
    ///
    /// `oldmonth` is removed if it is `from` and the record still has `node` and `connected_at`.
    FinishMove(MonthStep),
    /// Move the remaining messages of the old month to the new month.
    ///
    /// They are copied to `to`, which the record already names, and then deleted in `from`. A message of a topic that waits in `to` stays, whatever its id is: it was pushed after the record had moved, or
    /// its push is not answered yet. That of `from` is only deleted. So are messages of channels that are not registered
    /// in `to`. Repeatable after a crash at any point. Many messages are moved in pages, and other writes of the agent
    /// may be executed between two pages.
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
    ///
    /// [`RegisterResult::Registered`] carries the binding that the record had before, so that the caller can notify that
    /// node of its dead connection. The notification is an optimisation: all writes of that node are conditional on
    /// `connected_at`. So the binding may be missing if the engine wrote the record and lost its own reply.
    Registered(RegisterResult),
    /// The answer to [`StoreOp::ReadChannels`]: none if the agent never registered a channel in
    /// this month, or the month has no table; an empty set if all channels were unregistered.
    Channels(Option<BTreeSet<Chid>>),
    /// The answer to [`StoreOp::Fetch`] and [`StoreOp::FetchVersions`].
    Fetched(Page),
    /// The answer to [`StoreOp::Delete`].
    Deleted(SettledMessages),
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

/// What a [`StoreOp::Delete`] has done.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct SettledMessages {
    pub deleted: usize,
    /// The subscriptions that have unpublished receipts now.
    pub subscriptions: Vec<FeedName>,
}

impl StoreOp {
    /// Whether it changes rows.
    pub fn is_write(&self) -> bool {
        !matches!(self, Self::ReadChannels { .. } | Self::Fetch { .. } | Self::FetchVersions { .. })
    }
}

impl StoreAnswer {
    /// Whether it is an answer to this operation.
    pub fn fits(&self, op: &StoreOp) -> bool {
        match self {
            Self::Registered(_) => matches!(op, StoreOp::Register(_)),
            Self::Channels(_) => matches!(op, StoreOp::ReadChannels { .. }),
            Self::Fetched(_) => {
                matches!(op, StoreOp::Fetch { .. } | StoreOp::FetchVersions { .. })
            }
            Self::Deleted(_) => matches!(op, StoreOp::Delete { .. }),
            Self::OffersRecorded => matches!(op, StoreOp::RecordOffers { .. }),
            Self::ChannelsAdded => {
                matches!(op, StoreOp::AddChannels { .. } | StoreOp::CreateChannels { .. })
            }
            Self::ChannelRemoved => matches!(
                op,
                StoreOp::RemoveChannel { .. } | StoreOp::RemoveChannelAndVersion { .. }
            ),
            Self::MonthUpdated(_) => matches!(op, StoreOp::UpdateMonth(_)),
            Self::MoveFinished(_) => matches!(op, StoreOp::FinishMove(_)),
            Self::Moved => matches!(op, StoreOp::MoveMessages { .. }),
            Self::NodeCleared(_) => matches!(op, StoreOp::ClearNode { .. }),
            Self::OverLimit => matches!(op, StoreOp::Register(_) | StoreOp::AddChannels { .. }),
            Self::NoSpace => op.is_write(),
        }
    }

    /// The page that was fetched.
    pub fn page(self) -> Option<Page> {
        match self {
            Self::Fetched(page) => Some(page),
            _ => None,
        }
    }
}
