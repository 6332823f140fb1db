//! The random operations on the world.

use state_machine::Urgency;

/// The number of channels of the agent.
pub(crate) const CHANNELS: u8 = 3;

/// The number of nodes, whose clocks differ.
pub(crate) const NODES: usize = 3;

/// A random operation. If it is not possible, nothing happens.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    /// The agent connects to a node, and its previous connection ends in one of three ways.
    Connect {
        node: usize,
        parting: Parting,
    },
    /// The agent's connection ends, with a close that reaches the node or without.
    Leave {
        parting: Parting,
    },
    Register {
        channel: u8,
    },
    /// Always the last channel, so that the agent certainly keeps the others.
    Unregister,
    Urgency {
        min: Urgency,
    },
    Push {
        channel: u8,
        topic: Option<u8>,
        lifetime: Lifetime,
        urgency: Urgency,
        /// How far the clock of its endpoint is ahead: the endpoints' ids are not in the order of the pushes.
        clock: EndpointClock,
    },
    AckOne {
        nth: usize,
    },
    AckAll,
    /// One of the operations in progress is executed.
    Go {
        which: usize,
        how: How,
    },
    /// Every operation in progress is executed.
    GoAll,
    Wait {
        ms: u64,
    },
    ToDeadline,
    /// The first instants of the next month, by the clock that is not behind.
    NextMonth,
    ShutDown {
        node: usize,
    },
}

/// The clock of an endpoint, beside the world's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndpointClock {
    Behind,
    Right,
    Ahead,
}

/// How long a pushed message is worth keeping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// It is delivered now or never.
    Zero,
    /// It may expire while it is unacked, or before it is sent.
    Short,
    Long,
}

/// The end of a connection that the agent abandons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parting {
    HangUp,
    /// The node does not detect it.
    Vanish,
    /// The agent still receives messages there.
    Linger,
}

/// How an operation in progress is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Well,
    /// A read returns the rows at the time of its submission.
    Early,
    /// The operation is executed, and its answer is lost.
    AckReplyLost,
    /// The operation is not executed.
    NotDone,
    /// A store without space refuses a write. Any other operation is not executed.
    NoSpace,
}

impl How {
    /// Whether the operation is not executed.
    pub(crate) fn is_undone(self) -> bool {
        matches!(self, Self::NotDone | Self::NoSpace)
    }
}
