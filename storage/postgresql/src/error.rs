//! Errors of PostgreSQL. None has a key or a payload: details, which have, are left out.

use std::io;
use std::time::Duration;

use postgresql_address::{AddressError, reason};
use state_machine::Month;
use storage::sql::values::TooLarge;
use storage::store::StoreError;
use tokio_postgres::error::SqlState;

pub(crate) type Result<T, E = SqlError> = std::result::Result<T, E>;

/// Why a statement failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{text}")]
pub struct SqlError {
    pub kind: ErrorKind,
    /// For an operator's log, without keys and payloads.
    text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrorKind {
    /// The server refused the statement. Nothing of its transaction was done.
    Refused(SqlState),
    /// The connection ended, or this program gave up waiting: the statement may have been executed.
    Lost,
    /// There was no connection. Nothing was done.
    Unreachable,
    /// The URL cannot be used.
    Address,
    /// A row has what this program does not write.
    Corrupt,
    /// What the contract has a name for.
    Store(StoreError),
}

impl SqlError {
    fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    pub(crate) fn corrupt(what: &str) -> Self {
        Self::new(ErrorKind::Corrupt, format!("a row in PostgreSQL is unreadable: {what}"))
    }

    /// Another transaction has made what this one was to make.
    pub(crate) fn conflict() -> Self {
        let kind = ErrorKind::Refused(SqlState::T_R_SERIALIZATION_FAILURE);
        Self::new(kind, "another transaction was in the way")
    }

    pub(crate) fn late(limit: Duration) -> Self {
        let limit_ms = limit.as_millis();
        Self::new(ErrorKind::Lost, format!("PostgreSQL did not answer within {limit_ms} ms"))
    }

    pub(crate) fn lost() -> Self {
        Self::new(ErrorKind::Lost, "the connection to PostgreSQL ended")
    }

    /// The connection could not be opened.
    pub(crate) fn unreachable(server: &str, reason: &str) -> Self {
        let text = format!("no PostgreSQL is reached at {server}: {reason}");
        Self::new(ErrorKind::Unreachable, text)
    }

    pub(crate) fn has_code(&self, codes: &[SqlState]) -> bool {
        matches!(&self.kind, ErrorKind::Refused(code) if codes.contains(code))
    }

    /// Whether a connection is refused until an operator changes something: it was refused by name, and not for a lack of
    /// places or while the server starts.
    pub(crate) fn is_refused_for_good(&self) -> bool {
        let may_pass = [SqlState::TOO_MANY_CONNECTIONS, SqlState::CANNOT_CONNECT_NOW];
        matches!(self.kind, ErrorKind::Refused(_)) && !self.has_code(&may_pass)
    }

    /// Whether a table or function of a month is missing. One that is dropped while it is called is a cache lookup that
    /// failed; such internal messages are never translated.
    fn is_missing(&self) -> bool {
        self.has_code(&[SqlState::UNDEFINED_TABLE, SqlState::UNDEFINED_FUNCTION])
            || self.has_code(&[SqlState::INTERNAL_ERROR])
                && self.text.contains("cache lookup failed")
    }

    pub(crate) fn is_of_no_month(&self) -> bool {
        matches!(self.kind, ErrorKind::Store(StoreError::NoSuchMonth(_)))
    }

    /// The error of a statement on the tables of a month, which may be missing.
    pub(crate) fn of(self, month: Option<Month>) -> Self {
        match month {
            Some(month) if self.is_missing() => StoreError::NoSuchMonth(month).into(),
            _ => self,
        }
    }

    /// Whether the same statements may succeed now: they were in the way of another transaction, or their connection ended.
    pub(crate) fn may_repeat(&self) -> bool {
        self.is_conflict() || self.ends_connection()
    }

    fn is_conflict(&self) -> bool {
        self.has_code(&[
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::LOCK_NOT_AVAILABLE,
        ])
    }

    /// Whether the server is not the one to write to, or ends: another connection may be to another server.
    pub(crate) fn ends_connection(&self) -> bool {
        self.kind == ErrorKind::Lost
            || self.has_code(&[
                SqlState::READ_ONLY_SQL_TRANSACTION,
                SqlState::ADMIN_SHUTDOWN,
                SqlState::CRASH_SHUTDOWN,
                SqlState::CANNOT_CONNECT_NOW,
            ])
    }

    /// Whether the server is not reached, or does not answer.
    pub(crate) fn is_away(&self) -> bool {
        matches!(self.kind, ErrorKind::Lost | ErrorKind::Unreachable)
    }
}

impl From<StoreError> for SqlError {
    fn from(error: StoreError) -> Self {
        Self { text: error.to_string(), kind: ErrorKind::Store(error) }
    }
}

impl From<AddressError> for SqlError {
    fn from(error: AddressError) -> Self {
        Self::new(ErrorKind::Address, error.to_string())
    }
}

impl From<TooLarge> for SqlError {
    fn from(error: TooLarge) -> Self {
        Self::corrupt(&error.to_string())
    }
}

impl From<tokio_postgres::Error> for SqlError {
    fn from(error: tokio_postgres::Error) -> Self {
        if let Some(refusal) = error.as_db_error() {
            let text = format!("PostgreSQL: {} ({})", refusal.message(), refusal.code().code());
            return Self { kind: ErrorKind::Refused(refusal.code().clone()), text };
        }
        let reason = reason(&error);
        if reason == "password missing" {
            let kind = ErrorKind::Refused(SqlState::INVALID_PASSWORD);
            return Self::new(kind, "PostgreSQL: no password");
        }
        let is_of_column = error.to_string().starts_with("error deserializing");
        let kind = if is_of_column { ErrorKind::Corrupt } else { ErrorKind::Lost };
        Self { kind, text: format!("PostgreSQL: {reason}") }
    }
}

impl From<SqlError> for StoreError {
    fn from(error: SqlError) -> Self {
        match error.kind {
            ErrorKind::Store(error) => error,
            _ if error.is_conflict() => Self::Busy,
            _ if error.has_code(&[SqlState::DISK_FULL]) => Self::NoSpace,
            _ => Self::Failed(error.text),
        }
    }
}

/// What a statement on a month returns that may have no table.
pub(crate) fn if_month<T: Default>(result: Result<T>) -> Result<T> {
    match result {
        Err(error) if error.is_of_no_month() => Ok(T::default()),
        result => result,
    }
}

/// Why the tables cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PostgresOpenError {
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error("{0}")]
    Unreachable(String),
    /// The tables are missing and may not be created.
    #[error("there are no tables of Kalends in the schema {schema} at {server}")]
    Missing { schema: String, server: String },
    #[error("the schema {schema} has tables of another program: name another one")]
    Foreign { schema: String },
    /// A newer version of this program made the tables.
    #[error(
        "the tables have schema version {found} of a newer kalends, and kalends {} knows none above {known}: run the newer \
         version again, or restore a backup from before it",
        env!("CARGO_PKG_VERSION")
    )]
    Newer { found: u64, known: u64 },
    /// An older version of this program made the tables, and this one may not change them.
    #[error(
        "the tables have schema version {found} and this program needs {known}: run what `kalends tables create --print` prints, \
         or start a server that may make tables"
    )]
    Older { found: u64, known: u64 },
    #[error("this is PostgreSQL {found}, and 13 or later is needed")]
    Old { found: String },
    /// A crash of the server would lose what was answered.
    #[error(
        "PostgreSQL runs with fsync = off, with which a power loss loses answered writes: set it to on"
    )]
    NoSync,
    #[error("{0}")]
    Failed(String),
    #[error("cannot start the threads of the PostgreSQL engine: {0}")]
    Thread(io::Error),
}

impl From<SqlError> for PostgresOpenError {
    fn from(error: SqlError) -> Self {
        match error.is_away() {
            true => Self::Unreachable(error.text),
            false => Self::Failed(error.text),
        }
    }
}
