//! The actions that are possible in a state. Their `Debug` form is printed in a counterexample.

use std::fmt;

use state_machine::feed::FeedSyncId;

use super::scenario::Bounds;

/// A node's index in the scenario.
pub(crate) type NodeIndex = usize;

/// A follower's index in the scenario.
pub(crate) type FollowerIndex = usize;

/// A key's index in the scenario.
pub(crate) type KeyIndex = usize;

/// A transition of the model.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// A writer changes a key through a node.
    Changes(NodeIndex, KeyIndex, Change),
    /// The store executes a step of a change that is under way.
    WritesOn(usize),
    TakesMail(NodeIndex),
    /// The store executes a step of the publisher's order, or its answer arrives.
    Publishes(NodeIndex),
    PublisherDeadline(NodeIndex),
    /// A publication reaches the store after its publisher stopped waiting for it.
    Arrives,
    /// One more number of a partly visible publication becomes visible to readers.
    IsSeen(FeedSyncId),
    /// A node begins to forget the oldest entry, a tombstone.
    Forgets,
    /// The store executes a step of it.
    RemovesForgotten,
    Starts(FollowerIndex),
    /// The store executes a step of the consumer's order. The last step gives the consumer its
    /// page.
    Reads(FollowerIndex),
    /// A page is handed on by one step.
    HandsOn(FollowerIndex),
    HearsHead(FollowerIndex),
    ConsumerDeadline(FollowerIndex),
    Fails(Fault),
}

/// A writer's change of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Change {
    Write,
    Republish,
    Delete,
}

/// A failure, whose number the scenario bounds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The node's process is killed and restarted, and its followers with it.
    NodeCrashes(NodeIndex),
    /// As above, but the publication that the node had sent is written later, if it still fits
    /// then.
    NodeCrashesAfterWriting(NodeIndex),
    /// The store fails the publication and changes nothing.
    StoreRefuses(NodeIndex),
    /// The store's answer is lost, and the publication is written later, if it still fits then.
    AckReplyLost(NodeIndex),
    /// The store fails the read.
    FetchFails(FollowerIndex),
    FollowerCrashes(FollowerIndex),
}

impl Action {
    /// How often such an action may still happen; none if only the state decides.
    pub(crate) fn bound(self, left: &mut Bounds) -> Option<&mut u8> {
        Some(match self {
            Self::Changes(_, _, Change::Write) => &mut left.writes,
            Self::Changes(_, _, Change::Republish) => &mut left.republishes,
            Self::Changes(_, _, Change::Delete) => &mut left.deletes,
            Self::Forgets => &mut left.forgets,
            Self::Fails(fault) => match fault {
                Fault::NodeCrashes(_) | Fault::NodeCrashesAfterWriting(_) => &mut left.node_crashes,
                Fault::StoreRefuses(_) | Fault::FetchFails(_) => &mut left.refusals,
                Fault::AckReplyLost(_) => &mut left.lost_answers,
                Fault::FollowerCrashes(_) => &mut left.follower_crashes,
            },
            _ => return None,
        })
    }
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
            Self::WritesOn(at) => write!(f, "write {at} continues"),
            Self::TakesMail(node) => write!(f, "publisher {node} takes its mail"),
            Self::Publishes(node) => write!(f, "the publication of publisher {node} continues"),
            Self::PublisherDeadline(node) => write!(f, "the deadline of publisher {node} passes"),
            Self::Arrives => write!(f, "a publication arrives that was not requested"),
            Self::IsSeen(number) => write!(f, "readers see number {number}"),
            Self::Forgets => write!(f, "the oldest tombstone is to be forgotten"),
            Self::RemovesForgotten => write!(f, "the removal of the tombstone continues"),
            Self::Starts(follower) => write!(f, "consumer {follower} starts"),
            Self::Reads(follower) => write!(f, "the page of consumer {follower} is read on"),
            Self::HandsOn(follower) => write!(f, "consumer {follower} hands its page on"),
            Self::HearsHead(follower) => write!(f, "consumer {follower} is notified of the head"),
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
