//! Bugs that can be seeded around the machines: in the store, or where an order is carried out.
//!
//! Each is a few lines in the place where a real one would be made. The machines and the table are never touched.

/// A seeded bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// The next number is the greatest in use and one.
    MaxPlusOne,
    /// A publication is written whatever became of the sequence.
    NoSequenceCondition,
    /// A publication is written, with the values that it read, whatever became of the keys.
    NoKeyCondition,
    /// A publication says that no key waits behind it.
    NothingBehind,
    /// A reader takes whatever numbers there are, and goes on after the greatest.
    ReaderWithoutHead,
    /// A reader asks for the head when it has read the rows.
    HeadReadAfterRows,
    /// The rows of a page are in the order of their keys.
    PageByKey,
    /// A reader goes as far as the sequence's value, where a publication may be seen in part.
    ValueForSettled,
    /// A publication that nobody settled is settled by the next publisher, seen or not.
    SettledUnseen,
    /// A publication begins where the last one is not settled.
    LastNotSettled,
    /// A publication is settled whatever became of the sequence.
    SettledWithoutCondition,
    /// A write leaves the key its number.
    NumberKept,
    /// A delete leaves nothing behind.
    NoTombstone,
    /// The cursor is saved, then the page is consumed.
    CursorBeforeConsuming,
    /// What is written during a publication is not told to the publisher.
    WrittenForgotten,
    /// A node that starts does not look for what was left behind.
    NoSweepAtStart,
    /// The publisher is not told that somebody follows.
    WatchForgotten,
}
