//! The results of an input, and how they are written.

use std::fmt;

use super::input::{ConsumerName, PublisherName, key};
use crate::script::tokens::quoted;
use crate::transcript::list;
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

/// The error for an input that is not possible now. The world is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutOfTurn {
    #[error("{0} has no pending publication: write `{0}> written` first")]
    NothingToPublish(PublisherName),
    #[error("{0} commits what it read: write `{0}> finds` and `{0}> reads` first")]
    NothingRead(PublisherName),
    #[error("{0} is not started: write `{0}> starts` first")]
    NotStarted(ConsumerName),
    #[error("{0} is already started: write `{0}> crashes` first")]
    Started(ConsumerName),
    #[error("{0} has no pending fetch")]
    NothingToFetch(ConsumerName),
    #[error("{0} reads updates up to the head it read: write `{0}> reads head` first")]
    NoHead(ConsumerName),
    #[error("{0} has no page to consume")]
    NothingToConsume(ConsumerName),
    /// The wait passes a deadline: a driver steps a machine at every deadline.
    #[error("this waits until {until}, over a deadline ({what}): wait until that first")]
    OverADeadline {
        /// The end of the wait, as a time from the start.
        until: String,
        /// The deadline: its machine, its reason and its time.
        what: String,
    },
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Row(name, row) => write!(f, "table< {} {}", key(name), columns(row)),
            Self::NoSuchKey => f.write_str("table< no such key"),
            Self::TooManyKeys => f.write_str("table< too many keys"),
            Self::Forgotten(horizon, count) => {
                write!(f, "table< horizon {horizon} forgotten={count}")
            }
            Self::Conflict => f.write_str("table< conflict"),
            Self::Found(name, pending) => write!(f, "{name}< found {}", list(pending, found)),
            Self::Sequence(name, sequence) => {
                write!(f, "{name}< sequence {} version={}", sequence.value, sequence.version)
            }
            Self::Max(name, max) => write!(f, "{name}< max {max}"),
            Self::Publisher(name, effect) => write!(f, "{name}< {}", published(effect)),
            Self::Head(name, Some(head)) => write!(f, "{name}< head {head}"),
            Self::Head(name, None) => write!(f, "{name}< no such feed"),
            Self::Consumer(name, effect) => write!(f, "{name}< {}", consumed(effect)),
            Self::Misses(name, missed, row) => {
                write!(f, "{name}< misses {} {}", key(missed), columns(row))
            }
            Self::MissesNothing(name) => write!(f, "{name}< misses nothing"),
        }
    }
}

fn published(effect: &PublisherEffect) -> String {
    match effect {
        PublisherEffect::Publish { after: None, .. } => "publish".to_owned(),
        PublisherEffect::Publish { after: Some(after), .. } => {
            format!("publish after={}", key(after))
        }
        PublisherEffect::Announce { head } => format!("announce {head}"),
    }
}

fn consumed(effect: &ConsumerEffect) -> String {
    match effect {
        ConsumerEffect::Fetch { after, .. } => format!("fetch after={after}"),
        ConsumerEffect::Consume(FeedPage { updates, cursor, head, .. }) => {
            format!("consume {} cursor={cursor} head={head}", list(updates, update))
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
    format!("{feed_sync_id} {} version={version} {}", key(name), held(value.as_ref()))
}

/// The columns of a row after its key.
fn columns(Row { value, version, feed_sync_id }: &Row) -> String {
    let number = feed_sync_id.map_or("waits".to_owned(), |number| format!("number={number}"));
    format!("version={version} {number} {}", held(value.as_ref()))
}

/// The value of a key, or its deletion.
fn held(value: Option<&FeedValue>) -> String {
    value.map_or("deleted".to_owned(), |value| format!("value={}", quoted(value.as_str())))
}
