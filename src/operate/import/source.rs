//! What an import reads of a database of autopush-rs, whichever database it is.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use state_machine::{Chid, Uaid};

use super::records::{SealedMessage, User};
use crate::command::JobError;

/// The maximum number of messages of a user that are read at once.
pub const MESSAGES_AT_ONCE: usize = 20;

/// A database of autopush-rs, which is read and not changed.
pub trait Source {
    /// Where a page of users begins.
    type Users: Default;
    /// Where a page of a user's messages begins.
    type Messages: Default;

    /// How many users there are, if the database knows it.
    fn total(&self) -> impl Future<Output = Result<Option<u64>, SourceError>>;

    /// The page of users that begins there. A user may be repeated on another page.
    fn users(
        &self,
        from: Self::Users,
    ) -> impl Future<Output = Result<Page<Uaid, Self::Users>, SourceError>>;

    /// The values of a user, with one channel above `channels_max` at the most if the database can leave out the others.
    fn user(
        &self,
        uaid: Uaid,
        channels_max: usize,
    ) -> impl Future<Output = Result<UserValues, SourceError>>;

    /// At most [`MESSAGES_AT_ONCE`] messages of the user that its agent has not acked.
    fn messages(
        &self,
        uaid: Uaid,
        acked: u64,
        from: Self::Messages,
    ) -> impl Future<Output = Result<Page<SealedMessage, Self::Messages>, SourceError>>;

    /// At most [`MESSAGES_AT_ONCE`] messages of any users, to try the crypto keys on them. None only if no message that
    /// can be read waits.
    fn some_messages(&self) -> impl Future<Output = Result<Vec<SealedMessage>, SourceError>>;
}

/// A part of the users, or of the messages of a user.
#[derive(Debug)]
pub struct Page<T, From> {
    pub items: Vec<T>,
    /// Those that cannot be read.
    pub unreadable: u64,
    /// Those that have expired and are gone.
    pub expired: u64,
    /// Where the next page begins.
    pub next: Option<From>,
}

/// The values of a user, except its messages.
#[derive(Debug)]
pub struct UserValues {
    /// None if it has expired meanwhile or cannot be read.
    pub record: Option<User>,
    /// When the server last heard of the user, in milliseconds.
    pub last_contact: Option<u64>,
    /// The second of the last message that the agent has acked.
    pub acked: u64,
    pub channels: BTreeSet<Chid>,
    /// Those whose ids are no UUIDs.
    pub channels_unreadable: usize,
    /// The number of messages in the database that the agent has acked.
    pub acked_messages: u64,
}

/// Why the source cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A value has another form than autopush-rs gives it, so that only its user is concerned.
    #[error("a value of a user cannot be read")]
    Unreadable,
    /// The reason, and what to do.
    #[error("{0}")]
    Failed(String),
}

impl From<SourceError> for JobError {
    fn from(error: SourceError) -> Self {
        Self::Refused(error.to_string())
    }
}

/// The URL of a database, which may contain a password. It is never printed, and never sent to a server.
#[derive(Clone, PartialEq, Eq)]
pub struct SourceUrl(String);

impl SourceUrl {
    /// The URL with its password.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SourceUrl {
    type Err = Infallible;

    /// Accepts any text: the error of a command line would print it.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for SourceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SourceUrl(redacted)")
    }
}
