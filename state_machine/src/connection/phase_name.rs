//! The names of phases and stages.

use std::fmt;

/// A phase, or a stage of an open connection. Fixtures, logs and `docs/state-machine.md` use these names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PhaseName {
    /// The socket was accepted and no message arrived.
    AwaitingHello,
    /// The record of a known agent is written, then its channels are read.
    Identified,
    /// The messages of the old month are delivered.
    DrainingOldMonth,
    /// The channels are added to the new month's table.
    CopyingChids,
    /// The record is written with the new month as `curmonth` and the old one as `oldmonth`.
    WritingRecord,
    /// Messages that endpoints stored in the old month meanwhile are delivered.
    DrainingAgain,
    /// The deletes under way finish before unacked messages are moved.
    AwaitingDeletes,
    /// Unacked messages of the old month are moved to the new one.
    MovingMessages,
    /// `oldmonth` is removed from the record.
    ClearingOldMonth,
    /// Commands and pushes are served.
    Ready,
    /// The connection has ended.
    Closed,
}

impl PhaseName {
    /// All names, in the order in which a connection can have them.
    pub const ALL: [Self; 11] = [
        Self::AwaitingHello,
        Self::Identified,
        Self::DrainingOldMonth,
        Self::CopyingChids,
        Self::WritingRecord,
        Self::DrainingAgain,
        Self::AwaitingDeletes,
        Self::MovingMessages,
        Self::ClearingOldMonth,
        Self::Ready,
        Self::Closed,
    ];
}

impl fmt::Display for PhaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
