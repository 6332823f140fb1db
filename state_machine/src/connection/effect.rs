//! The effects of a connection.

use crate::feed::FeedSyncId;
use crate::ids::{NodeId, OpId, PushId, Uaid};
use crate::message::MessageKey;
use crate::store::StoreOp;
use crate::time::Time;
use crate::wire::ServerMessage;

/// Effects, to be executed in this sequence.
pub type Effects = Vec<Effect>;

/// An effect, executed by the driver of the connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Send this message to the user agent.
    Send(ServerMessage),
    /// Send a WebSocket ping, to find out whether the peer is alive.
    Ping,
    /// Submit an operation to the store. The answer is an event with the same `op`.
    SubmitStoreOp { op: OpId, operation: StoreOp },
    /// Answer an endpoint's push.
    AnswerPush {
        /// The push of [`Event::PushArrived`](super::Event::PushArrived).
        push: PushId,
        /// The result of the delivery, for the endpoint.
        answer: PushAnswer,
        message: MessageKey,
    },
    /// Register the connection on this node under this uaid; an older one under it is replaced.
    Register { uaid: Uaid },
    /// Remove the connection from this node's registry.
    Deregister { uaid: Uaid },
    /// Notify the node that the record named before: the agent is connected here since `connected_at`.
    NotifyPreviousNode {
        /// The node that has the older connection.
        node: NodeId,
        uaid: Uaid,
        /// The `connected_at` of this connection in the record.
        connected_at: Time,
    },
    /// Step this connection with [`Event::BroadcastsChanged`](super::Event::BroadcastsChanged) when broadcasts change.
    SubscribeBroadcasts {
        /// The last change that this connection has seen.
        last_sent: FeedSyncId,
    },
    /// Stop sending [`Event::BroadcastsChanged`](super::Event::BroadcastsChanged) to this
    /// connection.
    UnsubscribeBroadcasts,
    /// Send the close frame that the reason requires for this agent, then close the socket at once. The last effect of
    /// a connection.
    Close(CloseReason),
}

/// The answer to a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PushAnswer {
    /// The user agent acked it; or its TTL is zero and it was sent.
    Accepted,
    /// It was sent and is not acked: the endpoint must store it.
    Unconfirmed,
    /// It was not sent: the endpoint must store it. A storage scan follows.
    Busy,
    /// The user agent has no such channel.
    NoSuchChannel,
}

/// Why a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CloseReason {
    /// No hello arrived in time.
    HelloTimeout,
    /// The first message was not hello.
    NoHello,
    /// A second hello arrived.
    SecondHello,
    /// A frame was not JSON.
    NotJson,
    /// A frame was binary.
    Binary,
    /// A frame was too large or broken.
    Unreadable,
    /// The peer was silent for `keepalive_interval` and sent nothing for `keepalive_grace` after a ping.
    Silent,
    /// The same user agent connected again, to this node or another.
    Replaced,
    /// The store had no record right after the operation to create one. The agent reconnects as
    /// after a replacement.
    RecordMissing,
    /// The session reached `session_max`.
    SessionEnded,
    /// More messages are overdue than one session remembers. The agent gets them again on its next connection, after
    /// all others.
    TooManyUnacked,
    /// More user agents connect to the node than `connects_per_second_max` allows.
    TooManyConnects,
    /// This user agent connected too often.
    TooManyHellos,
    /// The access token of the agent was revoked or replaced, or has expired.
    AccessEnded,
    /// The node is shutting down.
    Shutdown,
    /// The peer closed the socket.
    SocketClosed,
}

impl Effect {
    /// The effect's name in tables and logs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Send(message) => message.effect_name(),
            Self::Ping => "send ping",
            Self::SubmitStoreOp { operation, .. } => operation.effect_name(),
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
    /// The name of the effect in tables and logs.
    pub fn effect_name(&self) -> &'static str {
        match self {
            Self::Hello { .. } | Self::SimplePushHello { .. } => "send hello",
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
    /// The name of the effect in tables and logs.
    pub fn effect_name(&self) -> &'static str {
        match self {
            Self::Register(_) => "store: register",
            Self::ReadChannels { .. } => "store: read channels",
            Self::Fetch { .. } => "store: fetch",
            Self::FetchVersions { .. } => "store: fetch versions",
            Self::Delete { .. } => "store: delete",
            Self::RecordOffers { .. } => "store: record offers",
            Self::AddChannels { .. } => "store: add channels",
            Self::CreateChannels { .. } => "store: create channels",
            Self::RemoveChannel { .. } => "store: remove channel",
            Self::RemoveChannelAndVersion { .. } => "store: remove channel and version",
            Self::UpdateMonth(_) => "store: update month",
            Self::FinishMove(_) => "store: finish move",
            Self::MoveMessages { .. } => "store: move messages",
            Self::ClearNode { .. } => "store: clear node",
        }
    }
}

impl PushAnswer {
    /// The answer's name in tables, fixtures and logs.
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
    /// All reasons, for metrics and tests.
    pub const ALL: [Self; 16] = [
        Self::HelloTimeout,
        Self::NoHello,
        Self::SecondHello,
        Self::NotJson,
        Self::Binary,
        Self::Unreadable,
        Self::Silent,
        Self::Replaced,
        Self::RecordMissing,
        Self::SessionEnded,
        Self::TooManyUnacked,
        Self::TooManyConnects,
        Self::TooManyHellos,
        Self::AccessEnded,
        Self::Shutdown,
        Self::SocketClosed,
    ];

    /// The code of the close frame (RFC 6455 §7.4); none if the socket is closed already.
    pub fn code(self) -> Option<u16> {
        self.frame().0
    }

    /// The code of the close frame for an agent with or without the subprotocol; none if there is no close frame.
    ///
    /// An agent without the subprotocol may be on OkHttp, which stops reading at a close frame and keeps the dead
    /// connection until its next ping fails (docs/sources.md#client-programs). If it is only to reconnect, it gets no
    /// frame, because it notices the end of TCP at once.
    pub fn code_sent(self, has_subprotocol: bool) -> Option<u16> {
        let (code, is_to_reconnect, _) = self.frame();
        code.filter(|_| has_subprotocol || !is_to_reconnect)
    }

    /// The text of the close frame.
    pub fn text(self) -> &'static str {
        self.frame().2
    }

    /// The code, whether the agent broke no rule and is to connect again, and the text.
    fn frame(self) -> (Option<u16>, bool, &'static str) {
        let (code, is_to_reconnect, text) = match self {
            Self::HelloTimeout => (4408, false, "no hello in time"),
            Self::NoHello => (1002, false, "the first message must be hello"),
            Self::SecondHello => (1002, false, "hello was already said"),
            Self::NotJson => (1007, false, "messages are JSON objects"),
            Self::Binary => (1003, false, "messages are text frames"),
            Self::Unreadable => (1009, false, "frame too large or broken"),
            Self::Silent => (4408, false, "nothing heard for too long"),
            Self::Replaced => (4409, true, "the same user agent connected again, or was dropped"),
            Self::RecordMissing => (4409, true, "the record is missing, connect again"),
            Self::SessionEnded => (4410, true, "session ended, connect again"),
            Self::TooManyUnacked => (4410, true, "too many messages without an ack, connect again"),
            Self::TooManyConnects => {
                (1013, true, "too many user agents connect now, connect again later")
            }
            Self::TooManyHellos => {
                (4429, true, "this user agent connects too often, connect again later")
            }
            Self::AccessEnded => {
                (4401, false, "the access token was revoked or replaced, or has expired")
            }
            Self::Shutdown => (1001, true, "server is shutting down"),
            Self::SocketClosed => return (None, false, "socket closed"),
        };
        (Some(code), is_to_reconnect, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_without_the_subprotocol_gets_no_close_frame_if_it_is_only_to_reconnect() {
        let without_frame = |has_subprotocol: bool| -> Vec<CloseReason> {
            let reasons = CloseReason::ALL.into_iter();
            reasons.filter(|reason| reason.code_sent(has_subprotocol).is_none()).collect()
        };
        assert_eq!(without_frame(true), [CloseReason::SocketClosed]);
        assert_eq!(
            without_frame(false),
            [
                CloseReason::Replaced,
                CloseReason::RecordMissing,
                CloseReason::SessionEnded,
                CloseReason::TooManyUnacked,
                CloseReason::TooManyConnects,
                CloseReason::TooManyHellos,
                CloseReason::Shutdown,
                CloseReason::SocketClosed,
            ]
        );
    }
}
