//! The inputs of a history, and how its lines are read and written.

use std::fmt;

use crate::script::tokens::{
    SyntaxError, Tokens, one_of, quoted, span_text, unquoted, wait, word_of,
};
use state_machine::feed::{FeedKey, FeedSyncId, FeedValue};
use state_machine::time::Span;

/// The name of a publisher in a history: `P1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublisherName(pub u8);

/// The name of a consumer in a history: `C1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerName(pub u8);

/// An input of a history: one line with `>`, or `wait`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Input {
    /// A writer changes the feed.
    Changed(Change),
    /// A publisher takes a step.
    Publisher(PublisherName, PublisherStep),
    /// A consumer takes a step.
    Consumer(ConsumerName, ConsumerStep),
    /// The store forgets all entries up to a number.
    Forgotten(FeedSyncId),
    /// Time passes. The span may not pass a deadline.
    Wait(Span),
}

/// A writer's change of a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Change {
    /// Sets the key's value.
    Write(FeedKey, FeedValue),
    /// Publishes the value again unchanged.
    Republish(FeedKey),
    /// Deletes the value and leaves a tombstone.
    Delete(FeedKey),
}

/// A step of a publisher. The table of inputs in [`super`] describes each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PublisherStep {
    Written,
    /// The publisher is notified whether the feed has a follower on its node.
    Watched(bool),
    Finds,
    Reads,
    Commits,
    /// The publication is committed, and the publisher receives a failure.
    CommitsUnheard,
    /// All steps of the publication at once.
    Publishes,
    /// The store fails and changes nothing.
    Fails,
    /// The publisher's node restarts.
    Crashes,
}

/// A step of a consumer. The table of inputs in [`super`] describes each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConsumerStep {
    /// The consumer starts at its stored cursor, or after a number.
    Starts(Option<FeedSyncId>),
    Hears(FeedSyncId),
    ReadsHead,
    /// The fetch reads the updates up to the head.
    ReadsUpdates,
    /// All steps of the fetch at once.
    Fetches,
    Consumed,
    /// The store fails and reads nothing.
    Fails,
    /// The consumer is lost with the page that it had not consumed.
    Crashes,
    Compares,
}

use ConsumerStep as Consumes;
use PublisherStep as Publishes;

/// The steps of a publisher that have no arguments, and their words.
const PUBLISHER_STEPS: [(&str, PublisherStep); 10] = [
    ("written", Publishes::Written),
    ("watched yes", Publishes::Watched(true)),
    ("watched no", Publishes::Watched(false)),
    ("finds", Publishes::Finds),
    ("reads", Publishes::Reads),
    ("commits", Publishes::Commits),
    ("commits unheard", Publishes::CommitsUnheard),
    ("publishes", Publishes::Publishes),
    ("fails", Publishes::Fails),
    ("crashes", Publishes::Crashes),
];

/// The steps of a consumer that have no arguments, and their words.
const CONSUMER_STEPS: [(&str, ConsumerStep); 8] = [
    ("starts", Consumes::Starts(None)),
    ("reads head", Consumes::ReadsHead),
    ("reads updates", Consumes::ReadsUpdates),
    ("fetches", Consumes::Fetches),
    ("consumed", Consumes::Consumed),
    ("fails", Consumes::Fails),
    ("crashes", Consumes::Crashes),
    ("compares", Consumes::Compares),
];

impl Input {
    /// Reads a line. Returns none if its head is not that of an input.
    pub(super) fn read(head: &str, rest: &str) -> Result<Option<Self>, SyntaxError> {
        Ok(Some(match head.strip_suffix('>') {
            Some("writer") => Self::Changed(change(rest)?),
            Some("table") => Self::Forgotten(forgotten(rest)?),
            Some(name) => match (PublisherName::read(name), ConsumerName::read(name)) {
                (Some(name), _) => Self::Publisher(name, one_of(&PUBLISHER_STEPS, rest)?),
                (_, Some(name)) => Self::Consumer(name, consumer_step(rest)?),
                _ => return Ok(None),
            },
            None if head == "wait" => Self::Wait(wait(rest)?),
            None => return Ok(None),
        }))
    }
}

impl PublisherName {
    pub(super) fn read(name: &str) -> Option<Self> {
        name.strip_prefix('P')?.parse().ok().map(Self)
    }
}

impl ConsumerName {
    pub(super) fn read(name: &str) -> Option<Self> {
        name.strip_prefix('C')?.parse().ok().map(Self)
    }
}

fn change(text: &str) -> Result<Change, SyntaxError> {
    const CHANGES: &str = "write, republish or delete";
    let mut words = Tokens::of(text);
    let change = match words.word(CHANGES)? {
        "write" => Change::Write(key_of(&mut words)?, value_of(&mut words)?),
        "republish" => Change::Republish(key_of(&mut words)?),
        "delete" => Change::Delete(key_of(&mut words)?),
        other => return Err(format!("expected {CHANGES}, got `{other}`")),
    };
    words.end()?;
    Ok(change)
}

fn forgotten(text: &str) -> Result<FeedSyncId, SyntaxError> {
    let through = text.strip_prefix("forgets ").and_then(|number| number.parse().ok());
    through.map(FeedSyncId).ok_or_else(|| format!("expected forgets 2, got `{text}`"))
}

fn key_of(words: &mut Tokens<'_>) -> Result<FeedKey, SyntaxError> {
    let word = words.word("a key")?;
    let key = unquoted(word).and_then(|text| FeedKey::parse(&text).ok());
    key.ok_or_else(|| format!("expected a key, got `{word}`"))
}

fn value_of(words: &mut Tokens<'_>) -> Result<FeedValue, SyntaxError> {
    let word = words.word("a value")?;
    let value = unquoted(word).and_then(|text| FeedValue::parse(&text).ok());
    value.ok_or_else(|| format!("expected a value, got `{word}`"))
}

fn consumer_step(text: &str) -> Result<ConsumerStep, SyntaxError> {
    if let Some((_, step)) = CONSUMER_STEPS.iter().find(|(words, _)| *words == text) {
        return Ok(*step);
    }
    let number = |text: &str| text.parse().ok().map(FeedSyncId);
    let after = text.strip_prefix("starts after=").and_then(number);
    let heard = text.strip_prefix("hears ").and_then(number);
    after.map(|after| Consumes::Starts(Some(after))).or(heard.map(Consumes::Hears)).ok_or_else(
        || {
            let all = CONSUMER_STEPS.map(|(words, _)| words).join(", ");
            format!("expected one of {all}, starts after=7, hears 2, got `{text}`")
        },
    )
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed(change) => write!(f, "writer> {change}"),
            Self::Publisher(name, step) => write!(f, "{name}> {step}"),
            Self::Consumer(name, step) => write!(f, "{name}> {step}"),
            Self::Forgotten(through) => write!(f, "table> forgets {through}"),
            Self::Wait(span) => write!(f, "wait {}", span_text(*span)),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(name, value) => write!(f, "write {} {}", key(name), quoted(value.as_str())),
            Self::Republish(name) => write!(f, "republish {}", key(name)),
            Self::Delete(name) => write!(f, "delete {}", key(name)),
        }
    }
}

impl fmt::Display for PublisherStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(word_of(&PUBLISHER_STEPS, self))
    }
}

impl fmt::Display for ConsumerStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starts(Some(after)) => write!(f, "starts after={after}"),
            Self::Hears(head) => write!(f, "hears {head}"),
            step => f.write_str(word_of(&CONSUMER_STEPS, step)),
        }
    }
}

impl fmt::Display for PublisherName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "P{}", self.0)
    }
}

impl fmt::Display for ConsumerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "C{}", self.0)
    }
}

/// A key as one word.
pub(super) fn key(key: &FeedKey) -> String {
    quoted(key.as_str())
}
