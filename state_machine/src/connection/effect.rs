//! What a connection ops to be done.

use crate::feed::FeedSyncId;
use crate::ids::{NodeId, OpId, PushId, Uaid};
use crate::message::MessageKey;
use crate::store::StoreOp;
use crate::time::Time;
use crate::wire::ServerMessage;

/// PendingOps, to be carried out in this sequence.
pub type Effects = Vec<Effect>;

/// An order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Say this to the user agent.
    Send(ServerMessage),
    /// Send a WebSocket ping, to hear whether the peer is alive.
    Ping,
    /// Ask the store; its answer comes back as an event with the same `op`.
    SubmitStoreOp {
        /// Correlates the answer.
        op: OpId,
        /// What to ask.
        order: StoreOp,
    },
    /// Answer an endpoint's push.
    AnswerPush {
        /// Which push.
        push: PushId,
        /// What to say.
        answer: PushAnswer,
        /// The message it brought.
        message: MessageKey,
    },
    /// Be found under this uaid from now on; an older connection under it is told.
    Register {
        /// Under which name.
        uaid: Uaid,
    },
    /// No longer be found under this uaid.
    Deregister {
        /// Under which name.
        uaid: Uaid,
    },
    /// Tell another node, where the agent was connected before, that it is connected here since `connected_at`.
    NotifyPreviousNode {
        /// The other node.
        node: NodeId,
        /// Who moved.
        uaid: Uaid,
        /// The record's `connected_at`.
        connected_at: Time,
    },
    /// Be told from now on when broadcasts change.
    SubscribeBroadcasts {
        /// The last change that is known.
        last_sent: FeedSyncId,
    },
    /// No longer be told when broadcasts change.
    UnsubscribeBroadcasts,
    /// Send a close frame where the reason has a code, then close the socket at once. The last effect ever.
    Close(CloseReason),
}

/// The answer to a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PushAnswer {
    /// The user agent acked it; or its TTL is zero and it is written to the socket.
    Accepted,
    /// It was sent and is not acked: the endpoint must store it.
    Unconfirmed,
    /// It was not sent: the endpoint must store it. Storage will be checked.
    Busy,
    /// The channel is not among this user agent's.
    NoSuchChannel,
}

/// Why a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CloseReason {
    /// No hello came in time.
    HelloTimeout,
    /// The first message was no hello.
    NoHello,
    /// A second hello came.
    SecondHello,
    /// A frame that is not JSON.
    NotJson,
    /// A binary frame.
    Binary,
    /// A frame too large or broken.
    Unreadable,
    /// Nothing was heard for too long.
    Silent,
    /// The same user agent connected again, here or elsewhere.
    Replaced,
    /// The session reached its age limit.
    SessionEnded,
    /// The node is shutting down.
    Shutdown,
    /// The peer closed the socket.
    SocketClosed,
}

impl Effect {
    /// The effect's name: a few words for tables and logs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Send(message) => message.effect_name(),
            Self::Ping => "send ping",
            Self::SubmitStoreOp { order, .. } => order.effect_name(),
            Self::AnswerPush { answer, .. } => match answer {
                PushAnswer::Accepted => "answer accepted",
                PushAnswer::Unconfirmed => "answer unconfirmed",
                PushAnswer::Busy => "answer busy",
                PushAnswer::NoSuchChannel => "answer no such channel",
            },
            Self::Register { .. } => "register",
            Self::Deregister { .. } => "deregister",
            Self::NotifyPreviousNode { .. } => "notify previous node",
            Self::SubscribeBroadcasts { .. } => "subscribe to broadcasts",
            Self::UnsubscribeBroadcasts => "unsubscribe from broadcasts",
            Self::Close(_) => "close",
        }
    }
}

impl ServerMessage {
    pub fn effect_name(&self) -> &'static str {
        match self {
            Self::Hello { .. } => "send hello",
            Self::Registered { .. } => "send registered",
            Self::RegisterRefused { .. } => "send register refused",
            Self::Unregistered { .. } => "send unregistered",
            Self::Notification(_) => "send notification",
            Self::Broadcast(_) => "send broadcast",
            Self::Pong => "send pong",
            Self::UrgencySet { .. } => "send urgency set",
            Self::Error { .. } => "send error",
        }
    }
}

impl StoreOp {
    pub fn effect_name(&self) -> &'static str {
        match self {
            Self::Register(_) => "store: register",
            Self::ReadChannels { .. } => "store: read channels",
            Self::Fetch { .. } => "store: fetch",
            Self::Delete { .. } => "store: delete",
            Self::AddChannels { .. } => "store: add channels",
            Self::RemoveChannel { .. } => "store: remove channel",
            Self::UpdateMonth(_) => "store: update month",
            Self::FinishMove(_) => "store: finish move",
            Self::MoveMessages { .. } => "store: move messages",
            Self::ClearNode { .. } => "store: clear node",
        }
    }
}

impl PushAnswer {
    /// The answer's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Unconfirmed => "unconfirmed",
            Self::Busy => "busy",
            Self::NoSuchChannel => "no such channel",
        }
    }
}

impl CloseReason {
    /// Every reason.
    pub const ALL: [Self; 11] = [
        Self::HelloTimeout,
        Self::NoHello,
        Self::SecondHello,
        Self::NotJson,
        Self::Binary,
        Self::Unreadable,
        Self::Silent,
        Self::Replaced,
        Self::SessionEnded,
        Self::Shutdown,
        Self::SocketClosed,
    ];

    /// The code of the close frame (RFC 6455 §7.4); none where nobody is there to read it.
    pub fn code(self) -> Option<u16> {
        match self {
            Self::SocketClosed => None,
            Self::Shutdown => Some(1001),
            Self::NoHello | Self::SecondHello => Some(1002),
            Self::Binary => Some(1003),
            Self::NotJson => Some(1007),
            Self::Unreadable => Some(1009),
            Self::HelloTimeout | Self::Silent => Some(4408),
            Self::Replaced => Some(4409),
            Self::SessionEnded => Some(4410),
        }
    }

    /// The text of the close frame.
    pub fn text(self) -> &'static str {
        match self {
            Self::HelloTimeout => "no hello in time",
            Self::NoHello => "the first message must be hello",
            Self::SecondHello => "hello was already said",
            Self::NotJson => "messages are JSON objects",
            Self::Binary => "messages are text frames",
            Self::Unreadable => "frame too large or broken",
            Self::Silent => "nothing heard for too long",
            Self::Replaced => "the same user agent connected again",
            Self::SessionEnded => "session ended, connect again",
            Self::Shutdown => "server is shutting down",
            Self::SocketClosed => "socket closed",
        }
    }
}
