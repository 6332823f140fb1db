//! An agent script as its parser reads it.

use std::collections::BTreeSet;
use std::fmt;

use state_machine::connection::{Config, ConnectionSeed};
use state_machine::time::Span;
use state_machine::{Chid, Message, Month, OpId, RouterRecord, Time, Uaid};

use crate::script::Step;
use crate::transcript;

/// A parsed agent script, ready to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TwoNodesScript {
    /// The sentence of the first line.
    pub title: String,
    pub start: Time,
    /// What both nodes have in common; each has its own name.
    pub(super) config: Config,
    pub(super) seed: ConnectionSeed,
    /// When the script starts by the clocks of `here` and `there`.
    pub(super) clocks: [Time; 2],
    pub(super) record: Option<RouterRecord>,
    pub(super) channels: Vec<(Uaid, Month, BTreeSet<Chid>)>,
    /// The inputs, each with its expected effects.
    pub steps: Vec<Step<Input>>,
}

/// One of the two nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeName {
    Here,
    There,
}

/// An input of an agent script: one line with `>`, or `wait`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    At(NodeName, NodeInput),
    /// An endpoint stores a message for an agent.
    Stores(Uaid, Box<Message>),
    /// Time passes on both nodes.
    Wait(Span),
}

/// An input of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeInput {
    Connects,
    /// An input as a session has it.
    Session(transcript::Input),
    /// The oldest notification for the node arrives, or is lost.
    Notified(bool),
    Crashes,
    Store(OpId, Execution),
}

/// How the store treats an operation. The table of inputs in this module describes each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Execution {
    Executed,
    Failed,
    AnswerLost,
}

impl NodeName {
    pub(crate) const ALL: [Self; 2] = [Self::Here, Self::There];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Here => "here",
            Self::There => "there",
        }
    }

    pub(crate) fn read(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|node| node.as_str() == name)
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
