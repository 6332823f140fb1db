//! Bugs that can be seeded around the machines: in the store, or where an order is executed.
//!
//! Each is a few lines in the place where a real bug could be. The machines and the table are never
//! changed.

/// A bug for the model checker to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Mutation {
    /// The next number is the greatest in use plus one.
    MaxPlusOne,
    /// A publication is written whether or not the sequence has changed.
    NoSequenceCondition,
    /// A publication is written, with the values that it read, whether or not the keys have
    /// changed.
    NoKeyCondition,
    /// A publication reports that no unpublished key is left.
    NothingBehind,
    /// A reader takes every number that it finds, and continues after the greatest.
    ReaderWithoutHead,
    /// A reader reads the head after the rows.
    HeadReadAfterRows,
    /// The rows of a page are in the order of their keys.
    PageByKey,
    /// A reader uses the sequence's value as the head, although a publication may be partly
    /// visible.
    ValueForSettled,
    /// The next publisher settles an unsettled publication, visible or not.
    SettledUnseen,
    /// A publication starts before the previous one is settled.
    LastNotSettled,
    /// A publication is settled whether or not the sequence has changed.
    SettledWithoutCondition,
    /// A write leaves the key its old number.
    NumberKept,
    /// A delete leaves no tombstone.
    NoTombstone,
    /// The tombstone is removed before the horizon is raised.
    RemovedBeforeHorizon,
    /// A reader reads the horizon before the rows, and not again after them.
    HorizonReadFirst,
    /// A consumer without a cursor keeps what it has.
    KeptWithoutCursor,
    /// The cursor is saved before the page is consumed.
    CursorBeforeConsuming,
    /// The publisher is not notified of a write during a publication.
    WrittenForgotten,
    /// A node does not sweep for unpublished keys when it starts.
    NoSweepAtStart,
    /// The publisher is not notified of a new follower.
    WatchForgotten,
}
