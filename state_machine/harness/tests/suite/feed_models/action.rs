//! What may happen next. `Debug` is what a person reads in a counterexample.

use std::fmt;

use state_machine::feed::FeedSyncId;

/// A node, by its place in the scenario.
pub(crate) type NodeIndex = usize;

/// A follower, by its place in the scenario.
pub(crate) type FollowerIndex = usize;

/// A key, by its place in the scenario.
pub(crate) type KeyIndex = usize;

/// One thing that happens.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Somebody changes a key through a node.
    Changes(NodeIndex, KeyIndex, Change),
    TakesMail(NodeIndex),
    /// The store takes a step of the publisher's order, or its answer arrives.
    Publishes(NodeIndex),
    PublisherDeadline(NodeIndex),
    /// A publication arrives that nobody waits for any more.
    Arrives,
    /// Readers see one more number of a publication that they see in part.
    IsSeen(FeedSyncId),
    Starts(FollowerIndex),
    /// The store takes a step of the consumer's order; with the last one the consumer has the page.
    Reads(FollowerIndex),
    /// A page goes a step on.
    HandsOn(FollowerIndex),
    HearsHead(FollowerIndex),
    ConsumerDeadline(FollowerIndex),
    Fails(Fault),
}

/// What is done to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Write,
    Republish,
    Delete,
}

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The node's process is killed and started again; its followers went with it.
    NodeCrashes(NodeIndex),
    /// The same, but the publication that it had sent is written sometime, if it still fits then.
    NodeCrashesAfterWriting(NodeIndex),
    /// The store does not publish.
    StoreRefuses(NodeIndex),
    /// The store's answer is lost, and the publication is written sometime, if it still fits then.
    AckReplyLost(NodeIndex),
    /// The store does not read.
    FetchFails(FollowerIndex),
    FollowerCrashes(FollowerIndex),
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changes(node, key, Change::Write) => {
                write!(f, "key {key} is written through node {node}")
            }
            Self::Changes(node, key, Change::Republish) => {
                write!(f, "key {key} is to be published again, through node {node}")
            }
            Self::Changes(node, key, Change::Delete) => {
                write!(f, "key {key} is deleted through node {node}")
            }
            Self::TakesMail(node) => write!(f, "publisher {node} takes its mail"),
            Self::Publishes(node) => write!(f, "the publication of publisher {node} goes on"),
            Self::PublisherDeadline(node) => write!(f, "the deadline of publisher {node} passes"),
            Self::Arrives => write!(f, "a publication arrives that nobody waits for"),
            Self::IsSeen(number) => write!(f, "readers see number {number}"),
            Self::Starts(follower) => write!(f, "consumer {follower} starts"),
            Self::Reads(follower) => write!(f, "the page of consumer {follower} is read on"),
            Self::HandsOn(follower) => write!(f, "consumer {follower} hands its page on"),
            Self::HearsHead(follower) => write!(f, "consumer {follower} hears of the head"),
            Self::ConsumerDeadline(follower) => {
                write!(f, "the deadline of consumer {follower} passes")
            }
            Self::Fails(fault) => write!(f, "FAULT: {fault:?}"),
        }
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeCrashes(node) => write!(f, "node {node} crashes"),
            Self::NodeCrashesAfterWriting(node) => {
                write!(f, "node {node} crashes with its publication on its way")
            }
            Self::StoreRefuses(node) => write!(f, "the store refuses publisher {node}"),
            Self::AckReplyLost(node) => write!(f, "publisher {node} does not hear the answer"),
            Self::FetchFails(follower) => write!(f, "the fetch of consumer {follower} fails"),
            Self::FollowerCrashes(follower) => write!(f, "consumer {follower} crashes"),
        }
    }
}
