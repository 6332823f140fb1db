//! The results of an input, and how they are written.

use std::fmt;

use super::input::{ConsumerName, PublisherName};
use crate::transcript::tokens::quoted;
use state_machine::feed::table::Row;
use state_machine::feed::{
    ConsumerEffect, ConsumerEnd, FeedKey, FeedPage, FeedSyncId, FeedValue, PublisherEffect,
    Sequence, UnpublishedKey, Update,
};

/// A result of an input: one line with `<`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Outcome {
    Row(FeedKey, Row),
    NoSuchKey,
    TooManyKeys,
    /// The table's horizon, and the number of entries that were removed.
    Forgotten(FeedSyncId, usize),
    /// The publication is rejected because a row that it read has changed.
    Conflict,
    /// The unpublished keys that a publication read.
    Found(PublisherName, Vec<UnpublishedKey>),
    /// The sequence that a publication read.
    Sequence(PublisherName, Sequence),
    /// The greatest number in the table, which a naive publisher read.
    Max(PublisherName, FeedSyncId),
    Publisher(PublisherName, PublisherEffect),
    /// The head that a fetch read; none if there is no such feed.
    Head(ConsumerName, Option<FeedSyncId>),
    Consumer(ConsumerName, ConsumerEffect),
    /// A row whose last state the consumer has not seen.
    Misses(ConsumerName, FeedKey, Row),
    /// The consumer has seen the last state of every row.
    MissesNothing(ConsumerName),
}

/// A text as one word, quoted if it must be.
pub(super) struct AsWord<'a>(pub(super) &'a str);

/// A key as one word.
pub(super) fn key(key: &FeedKey) -> AsWord<'_> {
    AsWord(key.as_str())
}

/// The columns of a row after its key.
struct RowText<'a>(&'a Row);

/// The value of a key, or its deletion.
struct Held<'a>(Option<&'a FeedValue>);

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Row(name, row) => write!(f, "table< {} {}", key(name), RowText(row)),
            Self::NoSuchKey => f.write_str("table< no such key"),
            Self::TooManyKeys => f.write_str("table< too many keys"),
            Self::Forgotten(horizon, count) => {
                write!(f, "table< horizon {horizon} forgotten={count}")
            }
            Self::Conflict => f.write_str("table< conflict"),
            Self::Found(name, pending) => write!(f, "{name}< found [{}]", list(pending, found)),
            Self::Sequence(name, sequence) => {
                write!(f, "{name}< sequence {} version={}", sequence.value, sequence.version)
            }
            Self::Max(name, max) => write!(f, "{name}< max {max}"),
            Self::Publisher(name, order) => write!(f, "{name}< {}", published(order)),
            Self::Head(name, Some(head)) => write!(f, "{name}< head {head}"),
            Self::Head(name, None) => write!(f, "{name}< no such feed"),
            Self::Consumer(name, order) => write!(f, "{name}< {}", consumed(order)),
            Self::Misses(name, missed, row) => {
                write!(f, "{name}< misses {} {}", key(missed), RowText(row))
            }
            Self::MissesNothing(name) => write!(f, "{name}< misses nothing"),
        }
    }
}

fn published(order: &PublisherEffect) -> String {
    match order {
        PublisherEffect::Publish { after: None, .. } => "publish".to_owned(),
        PublisherEffect::Publish { after: Some(after), .. } => {
            format!("publish after={}", key(after))
        }
        PublisherEffect::Announce { head } => format!("announce {head}"),
    }
}

fn consumed(order: &ConsumerEffect) -> String {
    match order {
        ConsumerEffect::Fetch { after, .. } => format!("fetch after={after}"),
        ConsumerEffect::Consume(FeedPage { updates, cursor, head, .. }) => {
            format!("consume [{}] cursor={cursor} head={head}", list(updates, update))
        }
        ConsumerEffect::End(ConsumerEnd::NoSuchFeed) => "end no such feed".to_owned(),
        ConsumerEffect::End(ConsumerEnd::CursorTooOld { horizon }) => {
            format!("end cursor too old horizon={horizon}")
        }
        ConsumerEffect::End(ConsumerEnd::CursorFromTheFuture { head }) => {
            format!("end cursor from the future head={head}")
        }
    }
}

fn found(pending: &UnpublishedKey) -> String {
    format!("{} version={}", key(&pending.key), pending.version)
}

fn update(update: &Update) -> String {
    let Update { feed_sync_id, key: name, version, value } = update;
    format!("{feed_sync_id} {} version={version} {}", key(name), Held(value.as_ref()))
}

fn list<T>(items: &[T], text: impl Fn(&T) -> String) -> String {
    items.iter().map(text).collect::<Vec<String>>().join(", ")
}

impl fmt::Display for RowText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Row { value, version, feed_sync_id } = self.0;
        write!(f, "version={version} ")?;
        match feed_sync_id {
            Some(number) => write!(f, "number={number} ")?,
            None => f.write_str("waits ")?,
        }
        Held(value.as_ref()).fmt(f)
    }
}

impl fmt::Display for Held<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(value) => write!(f, "value={}", AsWord(value.as_str())),
            None => f.write_str("deleted"),
        }
    }
}

impl fmt::Display for AsWord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&quoted(self.0))
    }
}
