//! The actions that are possible in a state. Their `Debug` form is printed in a counterexample.

use std::fmt;

use state_machine::{ConnectionId, OpId, Urgency};

use super::notifications::{Content, Notification};
use super::scenario::Bounds;

/// A message's index in the scenario.
pub(crate) type Which = usize;

/// A node's index in the scenario.
pub(crate) type NodeIndex = usize;

/// A transition of the model.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// The agent opens a connection and sends hello. It abandons its previous connection without
    /// closing it.
    Connects(NodeIndex),
    HangsUp,
    /// The agent registers a second channel.
    Registers,
    /// The agent unregisters its second channel.
    Unregisters,
    SetsUrgency(Urgency),
    /// The agent sends an ack: on its connection, or on one that it has abandoned since.
    Acks(ConnectionId, Which),
    /// An application server pushes: the endpoint reads the record.
    Pushes(Which),
    /// The endpoint's next effect is executed.
    EndpointGoesOn(Which),
    /// The node's answer reaches the endpoint, or the endpoint detects that there is none.
    EndpointGetsAnswer(Which),
    /// A push in the connection's mailbox is handled.
    TakesPush(ConnectionId),
    /// The connection reads its signals.
    TakesNotices(ConnectionId),
    /// The store executes an operation; its answer is on its way.
    StoreExecutes(ConnectionId, OpId),
    /// The answer reaches the connection.
    StoreAnswers(ConnectionId, OpId),
    /// A connection's deadline passes.
    Deadline(ConnectionId),
    /// The deadline of an idle connection passes, and the agent does not answer a ping.
    IdleDeadline(ConnectionId),
    /// A notification from another node or from an endpoint reaches a node.
    NotificationArrives(Notification),
    /// The node starts to drain: it rejects new connections, and its sessions end one by one.
    Drains(NodeIndex),
    /// A session of a draining node ends.
    SessionEnds(ConnectionId),
    /// The process of a drained node exits.
    Exits(NodeIndex),
    /// The process of a node starts again.
    Starts(NodeIndex),
    /// The endpoints' breaker for a node closes, because the node answers again.
    Recovers(NodeIndex),
    Fails(Fault),
}

/// A failure, whose number the scenario bounds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The node's process is killed and restarted: its connections and its store queue are lost.
    NodeCrashes(NodeIndex),
    /// As above, but the writes that it had submitted are executed later.
    NodeCrashesAfterWriting(NodeIndex),
    /// The endpoint crashes before it answers the application server.
    EndpointCrashes(Which),
    /// The store is throttled and does not execute the operation.
    StoreRefuses(ConnectionId, OpId),
    /// The store executed the operation, and its answer is lost.
    AckReplyLost(ConnectionId, OpId),
    /// The store copied the messages of a move, deleted none of the old rows, and failed.
    CarriedByHalf(ConnectionId, OpId),
    /// The store is throttled and does not execute the endpoint's effect.
    StoreRefusesEndpoint(Which),
    /// The store has no space for the write.
    NoSpace(ConnectionId, OpId),
    /// The store has no space for the registration, and keeps it in memory.
    RegistrationUnwritten(ConnectionId, OpId),
    /// The store has no space for the endpoint's write.
    NoSpaceForEndpoint(Which),
    /// The store executed the endpoint's effect, and its answer is lost.
    EndpointAnswerLost(Which),
    /// The endpoint cannot reach the node.
    Unreachable(Which),
    /// The endpoint stops waiting for the node's answer, or the answer is lost.
    NodeAnswerLost(Which),
    NudgeLost(Which),
    /// The sender of a notification drops it, or crashes.
    NotificationLost(Notification),
}

impl Action {
    /// How often such an action may still happen; none if only the state decides.
    pub(crate) fn bound(self, left: &mut Bounds) -> Option<&mut u8> {
        Some(match self {
            Self::Connects(_) => &mut left.connects,
            Self::HangsUp => &mut left.hang_ups,
            Self::Registers => &mut left.registers,
            Self::Unregisters => &mut left.unregisters,
            Self::SetsUrgency(_) => &mut left.urgencies,
            Self::IdleDeadline(_) => &mut left.idle_deadlines,
            Self::Drains(_) => &mut left.drains,
            Self::Fails(fault) => fault.bound(left),
            _ => return None,
        })
    }
}

impl Fault {
    fn bound(self, left: &mut Bounds) -> &mut u8 {
        match self {
            Self::NodeCrashes(_) | Self::NodeCrashesAfterWriting(_) => &mut left.node_crashes,
            Self::EndpointCrashes(_) => &mut left.endpoint_crashes,
            Self::StoreRefuses(..) | Self::StoreRefusesEndpoint(_) => &mut left.store_refusals,
            Self::NoSpace(..) | Self::RegistrationUnwritten(..) | Self::NoSpaceForEndpoint(_) => {
                &mut left.no_spaces
            }
            Self::AckReplyLost(..)
            | Self::CarriedByHalf(..)
            | Self::EndpointAnswerLost(_)
            | Self::Unreachable(_)
            | Self::NodeAnswerLost(_)
            | Self::NudgeLost(_)
            | Self::NotificationLost(_) => &mut left.lost_answers,
        }
    }
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connects(node) => write!(f, "the agent connects to node {node}"),
            Self::HangsUp => write!(f, "the agent hangs up"),
            Self::Registers => write!(f, "the agent registers a second channel"),
            Self::Unregisters => write!(f, "the agent unregisters the second channel"),
            Self::SetsUrgency(min) => write!(f, "the agent sets its minimal urgency to {min:?}"),
            Self::Acks(ConnectionId(on), which) => {
                write!(f, "the agent acks M{which} on connection {on}")
            }
            Self::Pushes(which) => write!(f, "endpoint {which} reads the record"),
            Self::EndpointGoesOn(which) => write!(f, "endpoint {which} continues"),
            Self::EndpointGetsAnswer(which) => {
                write!(f, "endpoint {which} gets the answer of the node")
            }
            Self::TakesPush(ConnectionId(on)) => write!(f, "connection {on} takes a push"),
            Self::TakesNotices(ConnectionId(on)) => {
                write!(f, "connection {on} takes its notices")
            }
            Self::StoreExecutes(ConnectionId(on), OpId(op)) => {
                write!(f, "the store executes operation {op} of connection {on}")
            }
            Self::StoreAnswers(ConnectionId(on), OpId(op)) => {
                write!(f, "connection {on} gets the answer to operation {op}")
            }
            Self::Deadline(ConnectionId(on)) => {
                write!(f, "the deadline of connection {on} passes")
            }
            Self::IdleDeadline(ConnectionId(on)) => {
                write!(f, "the idle connection {on} meets its deadline")
            }
            Self::NotificationArrives(notification) => write!(f, "{notification} arrives"),
            Self::Drains(node) => write!(f, "node {node} begins to stop"),
            Self::SessionEnds(ConnectionId(on)) => {
                write!(f, "connection {on} ends with its node")
            }
            Self::Exits(node) => write!(f, "node {node} is gone"),
            Self::Starts(node) => write!(f, "node {node} is started again"),
            Self::Recovers(node) => write!(f, "the breaker of node {node} closes"),
            Self::Fails(fault) => write!(f, "FAULT: {fault:?}"),
        }
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeCrashes(node) => write!(f, "node {node} crashes"),
            Self::NodeCrashesAfterWriting(node) => {
                write!(f, "node {node} crashes with its writes on their way")
            }
            Self::EndpointCrashes(which) => write!(f, "endpoint {which} crashes"),
            Self::StoreRefuses(ConnectionId(on), OpId(op)) => {
                write!(f, "the store refuses operation {op} of connection {on}")
            }
            Self::AckReplyLost(ConnectionId(on), OpId(op)) => {
                write!(f, "the answer to operation {op} of connection {on} is lost")
            }
            Self::CarriedByHalf(ConnectionId(on), OpId(op)) => {
                write!(f, "the store executes half of operation {op} of connection {on}")
            }
            Self::StoreRefusesEndpoint(which) => write!(f, "the store refuses endpoint {which}"),
            Self::NoSpace(ConnectionId(on), OpId(op)) => {
                write!(f, "the store has no space for operation {op} of connection {on}")
            }
            Self::RegistrationUnwritten(ConnectionId(on), OpId(op)) => {
                write!(f, "the store keeps operation {op} of connection {on} in memory")
            }
            Self::NoSpaceForEndpoint(which) => {
                write!(f, "the store has no space for endpoint {which}")
            }
            Self::EndpointAnswerLost(which) => {
                write!(f, "endpoint {which} loses the store's answer")
            }
            Self::Unreachable(which) => write!(f, "endpoint {which} does not reach the node"),
            Self::NodeAnswerLost(which) => write!(f, "endpoint {which} loses the node's answer"),
            Self::NudgeLost(which) => write!(f, "the nudge of endpoint {which} is lost"),
            Self::NotificationLost(notification) => write!(f, "{notification} is lost"),
        }
    }
}

impl fmt::Display for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { to, content } = self;
        match content {
            Content::Stored => write!(f, "the nudge for node {to}"),
            Content::ConnectedElsewhere(since) => {
                write!(f, "the word for node {to} that the agent is elsewhere since {since:?}")
            }
        }
    }
}
