//! What happens to a connection: facts, in the past tense.

use std::sync::Arc;

use super::effect::CloseReason;
use crate::broadcast::Broadcasts;
use crate::ids::{OpId, PushId};
use crate::message::{Message, MessageKey};
use crate::store::{StoreAnswer, StoreFailed};
use crate::time::Time;
use crate::wire::{ClientMessage, InvalidFrame};

/// An input of the state machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// The user agent sent a message.
    MessageReceived(ClientMessage),
    /// The user agent sent its hello, which is over a limit: the connection is to close for this reason.
    HelloOverLimit(CloseReason),
    /// The user agent sent a frame that is no message.
    InvalidFrame(InvalidFrame),
    /// A control frame arrived: the peer is alive.
    PeerActive,
    /// The peer closed the socket, or it broke.
    SocketClosed,
    /// The deadline of the connection may have passed.
    TimePassed,
    /// The same user agent connected again, to this node.
    Replaced,
    /// The same user agent connected to another node.
    ConnectedElsewhere {
        /// The record's `connected_at`, by that node's clock.
        connected_at: Time,
    },
    /// The node is shutting down.
    ShutdownBegan,
    /// The access token of the agent was revoked or replaced, or has expired.
    AccessEnded,
    /// An endpoint stored a message for this user agent.
    MessageStored,
    /// All broadcasts as of now. [`Connection::broadcasts_due`](super::Connection::broadcasts_due) decides when the driver
    /// steps this because of a message; a subscribed connection gets it when broadcasts changed.
    BroadcastsChanged(Arc<Broadcasts>),
    /// An endpoint pushes a message to deliver now.
    PushArrived {
        /// Correlates this push with its [`Effect::AnswerPush`](super::Effect::AnswerPush).
        push: PushId,
        message: Message,
    },
    /// The endpoint of a push that was answered *accepted* had stopped waiting: it will store the message.
    AckReplyLost(MessageKey),
    /// The store answered an operation.
    StoreAnswered { op: OpId, answer: Result<StoreAnswer, StoreFailed> },
}

impl Event {
    /// The event's name in tables, fixtures and logs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::MessageReceived(message) => match message {
                ClientMessage::Hello { .. } => "hello",
                ClientMessage::Register { .. } => "register",
                ClientMessage::Unregister { .. } => "unregister",
                ClientMessage::Ack { .. } => "ack",
                ClientMessage::Nack => "nack",
                ClientMessage::BroadcastSubscribe { .. } => "broadcast_subscribe",
                ClientMessage::Ping => "ping",
                ClientMessage::Urgency { .. } => "urgency",
            },
            Self::HelloOverLimit(_) => "hello over limit",
            Self::InvalidFrame(_) => "invalid frame",
            Self::PeerActive => "peer active",
            Self::SocketClosed => "socket closed",
            Self::TimePassed => "time passed",
            Self::Replaced => "replaced",
            Self::ConnectedElsewhere { .. } => "connected elsewhere",
            Self::ShutdownBegan => "shutdown began",
            Self::AccessEnded => "access ended",
            Self::MessageStored => "message stored",
            Self::BroadcastsChanged(_) => "broadcasts changed",
            Self::PushArrived { .. } => "push arrived",
            Self::AckReplyLost(_) => "ack reply lost",
            Self::StoreAnswered { answer: Err(_), .. } => "store failed",
            Self::StoreAnswered { answer: Ok(answer), .. } => answer.name(),
        }
    }

    /// Whether it proves that the peer is alive.
    pub(crate) fn is_from_peer(&self) -> bool {
        matches!(self, Self::MessageReceived(_) | Self::InvalidFrame(_) | Self::PeerActive)
    }
}

impl StoreAnswer {
    /// The answer's name in tables, fixtures and logs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Registered(_) => "registered",
            Self::Channels(_) => "channels read",
            Self::Fetched(_) => "fetched",
            Self::Deleted(_) => "deleted",
            Self::OffersRecorded => "offers recorded",
            Self::ChannelsAdded => "channels added",
            Self::ChannelRemoved => "channel removed",
            Self::MonthUpdated(_) => "month updated",
            Self::MoveFinished(_) => "move finished",
            Self::Moved => "moved",
            Self::NodeCleared(_) => "node cleared",
            Self::OverLimit => "over limit",
            Self::NoSpace => "no space",
        }
    }
}
