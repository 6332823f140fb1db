//! What may happen next. `Debug` is what a person reads in a counterexample.

use std::fmt;

use state_machine::{ConnectionId, OpId};

use super::letters::{Letter, Word};

/// A message, by its place in the scenario.
pub(crate) type Which = usize;

/// A node, by its place in the scenario.
pub(crate) type NodeIndex = usize;

/// One thing that happens.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// The agent opens a connection and says hello; the one it had before is left without a word.
    Connects(NodeIndex),
    HangsUp,
    /// The agent asks for a second channel.
    Registers,
    /// The agent acks: on its connection, or on one that it has left since.
    Acks(ConnectionId, Which),
    /// An application server pushes: the endpoint reads the record.
    Pushes(Which),
    /// The endpoint's next order is carried out.
    EndpointGoesOn(Which),
    /// The node's answer reaches the endpoint, or it learns that there will be none.
    EndpointHears(Which),
    /// A push that was handed over reaches the connection.
    TakesPush(ConnectionId),
    /// The connection looks at its notices.
    TakesNotices(ConnectionId),
    /// The store carries an order out; its answer is on its way.
    StoreDoes(ConnectionId, OpId),
    /// The answer reaches the connection.
    HearsStore(ConnectionId, OpId),
    /// A connection's deadline passes.
    Deadline(ConnectionId),
    /// A node hears what another one or an endpoint tells it.
    LetterArrives(Letter),
    /// The node is told to stop: it takes nobody in any more, and its sessions end one by one.
    Drains(NodeIndex),
    /// A session of a node that drains ends.
    SessionEnds(ConnectionId),
    /// The process of a node that has drained is gone.
    Exits(NodeIndex),
    /// The process of a node is there again.
    Starts(NodeIndex),
    /// The endpoints find that a node they left alone answers.
    Recovers(NodeIndex),
    Fails(Fault),
}

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The node's process is killed and started again: its connections and its queue to the store are gone.
    NodeCrashes(NodeIndex),
    /// The same, but what it had ordered to be written is on its way, and will be written sometime.
    NodeCrashesAfterWriting(NodeIndex),
    /// The endpoint is gone before it answered.
    EndpointCrashes(Which),
    /// The store is throttled and does not do it.
    StoreRefuses(ConnectionId, OpId),
    /// The store did it, and its answer is lost.
    AckReplyLost(ConnectionId, OpId),
    /// The store copied the messages it was to carry over, deleted none, and failed.
    CarriedByHalf(ConnectionId, OpId),
    /// The store is throttled and does not do what the endpoint ordered.
    StoreRefusesEndpoint(Which),
    /// The store did what the endpoint ordered, and its answer is lost.
    EndpointAnswerLost(Which),
    /// The endpoint does not reach the node.
    Unreachable(Which),
    /// The endpoint stops waiting for the node's answer, or it gets lost.
    NodeAnswerLost(Which),
    NudgeLost(Which),
    /// Whoever was to tell a node this forgets it, or crashes.
    LetterLost(Letter),
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connects(node) => write!(f, "the agent connects to node {node}"),
            Self::HangsUp => write!(f, "the agent hangs up"),
            Self::Registers => write!(f, "the agent registers a second channel"),
            Self::Acks(line, which) => write!(f, "the agent acks M{which} on {}", Name(*line)),
            Self::Pushes(which) => write!(f, "endpoint {which} reads the record"),
            Self::EndpointGoesOn(which) => write!(f, "endpoint {which} goes on"),
            Self::EndpointHears(which) => write!(f, "endpoint {which} hears of the node"),
            Self::TakesPush(line) => write!(f, "{} takes a push", Name(*line)),
            Self::TakesNotices(line) => write!(f, "{} takes its notices", Name(*line)),
            Self::StoreDoes(line, op) => {
                write!(f, "the store carries out order {} of {}", op.0, Name(*line))
            }
            Self::HearsStore(line, op) => {
                write!(f, "{} hears the answer to order {}", Name(*line), op.0)
            }
            Self::Deadline(line) => write!(f, "the deadline of {} passes", Name(*line)),
            Self::LetterArrives(letter) => write!(f, "{letter} arrives"),
            Self::Drains(node) => write!(f, "node {node} is told to stop"),
            Self::SessionEnds(line) => write!(f, "{} ends with its node", Name(*line)),
            Self::Exits(node) => write!(f, "node {node} is gone"),
            Self::Starts(node) => write!(f, "node {node} is started again"),
            Self::Recovers(node) => write!(f, "node {node} is not left alone any more"),
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
