//! The events and effects of a delivery.

use crate::bridge::{BridgeOutcome, BridgeRecipient};
use crate::connection::PushAnswer;
use crate::ids::{MessageId, NodeId};
use crate::month::Month;
use crate::record::{RouterRecord, RouterType};
use crate::store::{FullScope, StoreFailed, Stored};
use crate::time::Time;

/// The fields of a router record that a delivery needs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Route {
    /// The node the user agent is connected to, if any.
    pub node: Option<NodeId>,
    /// The `connected_at` of the record.
    pub connected_at: Time,
    /// The month whose table its messages are stored in.
    pub curmonth: Month,
    /// How the agent is reached behind a bridge.
    pub bridged: Option<BridgedRoute>,
}

/// The fields of a bridged record that a delivery needs, besides those of [`Route`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BridgedRoute {
    pub recipient: Box<BridgeRecipient>,
    /// The month that an unfinished move leaves. It may have the channels still.
    pub oldmonth: Option<Month>,
}

/// The answer of a connection node to a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeAnswer {
    /// The user agent acked the message, or the message was written to the socket and its TTL is
    /// zero.
    Accepted,
    /// The message was sent without an ack in time, or the outcome is unknown.
    Unconfirmed,
    /// The node is busy and did not send the message.
    Busy,
    /// The user agent is not connected there.
    NotHere,
    /// The connection does not know the channel.
    NoSuchChannel,
    /// The node did not answer. The agent may still be connected there.
    Unreachable,
}

/// An input of a delivery.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DeliveryEvent {
    /// The result of [`DeliveryEffect::ReadRecord`]: none if the agent has no record.
    RecordRead(Result<Option<Route>, StoreFailed>),
    /// The record is of SimplePush and the message is not, or the reverse.
    OtherProtocol,
    /// The result of [`DeliveryEffect::Deliver`].
    NodeAnswered(NodeAnswer),
    /// The result of [`DeliveryEffect::ClearNode`]. The delivery continues even if the record has
    /// changed.
    NodeCleared,
    /// The result of [`DeliveryEffect::ConfirmChannel`]: whether the channel is registered.
    ChannelConfirmed(Result<bool, StoreFailed>),
    /// The result of [`DeliveryEffect::Store`].
    Stored(Result<Stored, WriteError>),
    /// The result of [`DeliveryEffect::DeleteStored`]. A failure is harmless: the duplicate has the
    /// same version.
    OldRowDeleted,
    /// The result of [`DeliveryEffect::MoveAgent`].
    AgentMoved(Result<Option<Route>, StoreFailed>),
    /// The result of [`DeliveryEffect::SendToBridge`].
    BridgeAnswered(BridgeOutcome),
    /// The result of [`DeliveryEffect::DropRecipient`]: whether the record still had that recipient.
    RecipientDropped(Result<bool, StoreFailed>),
}

/// Why a message was not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WriteError {
    /// The store failed or has no capacity now.
    Failed,
    /// The month has no message table.
    NoSuchMonth,
}

/// An effect of a delivery.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DeliveryEffect {
    /// Read the router record with a consistent read.
    ReadRecord,
    /// Send the push to the agent's node.
    Deliver { node: NodeId },
    /// Remove the node from the record if the record still has this node and `connected_at`.
    ClearNode {
        node: NodeId,
        /// The `connected_at` of the record.
        connected_at: Time,
    },
    /// Read whether the channel is registered.
    ConfirmChannel { month: Month },
    /// Store the message in a month's table.
    Store { month: Month },
    /// Delete the row in the month that the agent has left.
    DeleteStored { month: Month },
    /// Move the agent behind a bridge to this month, and read its record.
    MoveAgent,
    /// Send the message to the agent's bridge.
    SendToBridge { recipient: Box<BridgeRecipient> },
    /// Drop the record if it still has this recipient.
    DropRecipient { recipient: Box<BridgeRecipient> },
    /// Notify the node that a message was stored. The delivery does not wait for an answer.
    NotifyMessageStored {
        /// The node that the record names now.
        node: NodeId,
    },
    /// Answer the application server. The last effect of a delivery.
    Answer(Outcome),
}

/// The result of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// The node accepted the push, see [`NodeAnswer::Accepted`], or the bridge did.
    Delivered,
    /// The message is durable in the agent's message table.
    Stored,
    /// Its TTL is zero and it could not be delivered now (RFC 8030 §5.2).
    Dropped,
    /// The user agent has no record.
    NoSuchUser,
    /// The agent's table has a message of the same topic with this greater id. The push is repeated with an id above it.
    Outranked(MessageId),
    /// The record of the user agent disappeared while the message was stored.
    UserWentAway,
    /// The user agent speaks SimplePush and the message is one of Web Push, or the reverse.
    OtherProtocol,
    /// The channel is not registered.
    NoSuchChannel,
    /// As many messages wait for the user agent, or in the channel, as may. The sender may retry once the agent
    /// has fetched some.
    Full(FullScope),
    /// The bridge did not accept the message.
    Bridge(BridgeOutcome),
    /// The store is unavailable or has no capacity. The sender may retry.
    Unavailable,
}

/// Reads of the record after which the push fails, if the month changes each time.
pub(super) const LOOKUPS_MAX: u8 = 4;

pub(super) fn answer(outcome: Outcome) -> Vec<DeliveryEffect> {
    vec![DeliveryEffect::Answer(outcome)]
}

/// The word of a connection, which its node passes on.
impl From<PushAnswer> for NodeAnswer {
    fn from(answer: PushAnswer) -> Self {
        match answer {
            PushAnswer::Accepted => Self::Accepted,
            PushAnswer::Unconfirmed => Self::Unconfirmed,
            PushAnswer::Busy => Self::Busy,
            PushAnswer::NoSuchChannel => Self::NoSuchChannel,
        }
    }
}

impl From<RouterRecord> for Route {
    fn from(record: RouterRecord) -> Self {
        let RouterRecord { router_type, node, connected_at, curmonth, oldmonth, .. } = record;
        let bridged = match router_type {
            RouterType::Bridge(recipient) => Some(BridgedRoute { recipient, oldmonth }),
            RouterType::WebPush | RouterType::SimplePush => None,
        };
        Self { node, connected_at, curmonth, bridged }
    }
}
