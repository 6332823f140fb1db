//! What may happen in the world.

use state_machine::Urgency;

/// Channels of the agent.
pub(crate) const CHANNELS: u8 = 3;

/// Nodes, whose clocks differ.
pub(crate) const NODES: usize = 3;

/// What happens next.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    /// The agent connects to a node, and its connection before that ends in one of three ways.
    Connect {
        node: usize,
        parting: Parting,
    },
    /// The agent's connection ends, with a word to the node or without.
    Leave {
        parting: Parting,
    },
    Register {
        channel: u8,
    },
    /// Always the last channel, so that the others are certain to be wanted.
    Unregister,
    Urgency {
        min: Urgency,
    },
    Push {
        channel: u8,
        topic: Option<u8>,
        ttl_is_zero: bool,
        urgency: Urgency,
    },
    AckOne {
        nth: usize,
    },
    AckAll,
    /// One of the things under way comes to pass.
    Go {
        which: usize,
        how: How,
    },
    /// Everything under way comes to pass.
    GoAll,
    Wait {
        ms: u64,
    },
    ToDeadline,
    /// Just into the next month, by the clock that is not behind.
    NextMonth,
    ShutDown {
        node: usize,
    },
}

/// What becomes of a connection that the agent leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parting {
    HangUp,
    /// The node does not notice.
    Vanish,
    /// The agent still hears messages that come there.
    Linger,
}

/// How a thing under way comes to pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Well,
    /// A read sees what was there when it was ordered.
    Early,
    /// It was done, and its answer is lost.
    AckReplyLost,
    /// It was not done.
    NotDone,
}
