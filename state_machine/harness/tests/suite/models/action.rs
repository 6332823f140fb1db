//! The actions that are possible in a state. Their `Debug` form is printed in a counterexample.

use std::fmt;

use state_machine::{ConnectionId, OpId, Urgency};

use super::letters::{Letter, Word};

/// A message's index in the scenario.
pub(crate) type Which = usize;

/// A node's index in the scenario.
pub(crate) type NodeIndex = usize;

/// A transition of the model.
#[derive(Clone, PartialEq, Eq)]
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
    /// The endpoint's next order is executed.
    EndpointGoesOn(Which),
    /// The node's answer reaches the endpoint, or the endpoint detects that there is none.
    EndpointHears(Which),
    /// A push in the connection's mailbox is handled.
    TakesPush(ConnectionId),
    /// The connection reads its signals.
    TakesNotices(ConnectionId),
    /// The store executes an operation; its answer is on its way.
    StoreDoes(ConnectionId, OpId),
    /// The answer reaches the connection.
    HearsStore(ConnectionId, OpId),
    /// A connection's deadline passes.
    Deadline(ConnectionId),
    /// The deadline of an idle connection passes, and the agent does not answer a ping.
    IdleDeadline(ConnectionId),
    /// A notification from another node or from an endpoint reaches a node.
    LetterArrives(Letter),
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
    /// The store is throttled and does not execute the endpoint's order.
    StoreRefusesEndpoint(Which),
    /// The store has no space for the write.
    NoSpace(ConnectionId, OpId),
    /// The store has no space for the registration, and keeps it in memory.
    RegistrationUnwritten(ConnectionId, OpId),
    /// The store has no space for the endpoint's write.
    NoSpaceForEndpoint(Which),
    /// The store executed the endpoint's order, and its answer is lost.
    EndpointAnswerLost(Which),
    /// The endpoint cannot reach the node.
    Unreachable(Which),
    /// The endpoint stops waiting for the node's answer, or the answer is lost.
    NodeAnswerLost(Which),
    NudgeLost(Which),
    /// The sender of a notification drops it, or crashes.
    LetterLost(Letter),
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connects(node) => write!(f, "the agent connects to node {node}"),
            Self::HangsUp => write!(f, "the agent hangs up"),
            Self::Registers => write!(f, "the agent registers a second channel"),
            Self::Unregisters => write!(f, "the agent unregisters the second channel"),
            Self::SetsUrgency(min) => write!(f, "the agent sets its minimal urgency to {min:?}"),
            Self::Acks(line, which) => write!(f, "the agent acks M{which} on {}", Name(*line)),
            Self::Pushes(which) => write!(f, "endpoint {which} reads the record"),
            Self::EndpointGoesOn(which) => write!(f, "endpoint {which} continues"),
            Self::EndpointHears(which) => write!(f, "endpoint {which} gets the answer of the node"),
            Self::TakesPush(line) => write!(f, "{} takes a push", Name(*line)),
            Self::TakesNotices(line) => write!(f, "{} takes its notices", Name(*line)),
            Self::StoreDoes(line, op) => {
                write!(f, "the store carries out order {} of {}", op.0, Name(*line))
            }
            Self::HearsStore(line, op) => {
                write!(f, "{} gets the answer to operation {}", Name(*line), op.0)
            }
            Self::Deadline(line) => write!(f, "the deadline of {} passes", Name(*line)),
            Self::IdleDeadline(line) => write!(f, "the idle {} meets its deadline", Name(*line)),
            Self::LetterArrives(letter) => write!(f, "{letter} arrives"),
            Self::Drains(node) => write!(f, "node {node} begins to stop"),
            Self::SessionEnds(line) => write!(f, "{} ends with its node", Name(*line)),
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
            Self::StoreRefuses(line, op) => {
                write!(f, "the store refuses order {} of {}", op.0, Name(*line))
            }
            Self::AckReplyLost(line, op) => {
                write!(f, "the answer to order {} of {} is lost", op.0, Name(*line))
            }
            Self::CarriedByHalf(line, op) => {
                write!(f, "the store carries out half of order {} of {}", op.0, Name(*line))
            }
            Self::StoreRefusesEndpoint(which) => write!(f, "the store refuses endpoint {which}"),
            Self::NoSpace(line, op) => {
                write!(f, "the store has no space for order {} of {}", op.0, Name(*line))
            }
            Self::RegistrationUnwritten(line, op) => {
                write!(f, "the store keeps order {} of {} in memory", op.0, Name(*line))
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
            Self::LetterLost(letter) => write!(f, "{letter} is lost"),
        }
    }
}

impl fmt::Display for Letter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { to, word } = self;
        match word {
            Word::Stored => write!(f, "the nudge for node {to}"),
            Word::ConnectedElsewhere(since) => {
                write!(f, "the word for node {to} that the agent is elsewhere since {since:?}")
            }
        }
    }
}

/// A connection's name in a counterexample.
struct Name(ConnectionId);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection {}", self.0.0)
    }
}
