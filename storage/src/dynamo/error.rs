//! What DynamoDB answers where it did not do what it was asked, in the words of the contract.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::fmt;

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::{AttributeValue, CancellationReason};

use super::empty_response_retry::EmptyResponse;
use crate::store::StoreError;

/// An item as DynamoDB has it.
pub(super) type Item = HashMap<String, AttributeValue>;

/// What a service's message is cut to: an operator's log line.
const MESSAGE_CHARS_MAX: usize = 300;

/// Error codes that say "not now", all of them before anything was done.
pub(super) const THROTTLED: [&str; 9] = [
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ThrottlingException",
    "Throttling",
    "TooManyRequestsException",
    "SlowDown",
    TRANSACTION_CONFLICT,
    "TransactionInProgressException",
    REPLICATED_CONFLICT,
];
/// Another request's transaction has the item.
pub(super) const TRANSACTION_CONFLICT: &str = "TransactionConflictException";
/// Another region writes the item.
pub(super) const REPLICATED_CONFLICT: &str = "ReplicatedWriteConflictException";

/// What a cancelled transaction says of an action whose condition does not hold.
const CONDITION_FAILED: &str = "ConditionalCheckFailed";
/// What it says of an action that could not be done just now.
const NOT_NOW: [&str; 3] =
    ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"];
/// What it says of an action that was not in the way.
const NOT_THIS: &str = "None";

/// The error code of a table that is not there.
const MISSING: &str = "ResourceNotFoundException";

/// Error codes of somebody who is not known, or may not.
const DENIED: [&str; 8] = [
    "AccessDeniedException",
    "UnrecognizedClientException",
    "InvalidSignatureException",
    "SignatureDoesNotMatch",
    "MissingAuthenticationTokenException",
    "MissingAuthenticationToken",
    "IncompleteSignatureException",
    "ExpiredTokenException",
];

/// A request that was not done as asked. Says which, on which table, and what the service said; never
/// a key or a value.
#[derive(Debug)]
pub(super) struct CallError {
    operation: &'static str,
    table: String,
    kind: Kind,
    /// Whether some of it, or of the call it belongs to, may have been done all the same.
    indeterminate: bool,
}

#[derive(Debug)]
enum Kind {
    /// The condition does not hold; this is the item it was tried on, where the server gives it.
    ConditionFailed(Option<Item>),
    /// The transaction was cancelled: what was in the way of each of its actions.
    Cancelled(Vec<String>),
    /// The service refused.
    Service { code: String, message: String },
    /// No answer in time.
    TimedOut,
    /// The server cannot be reached, or the connection broke.
    Unreachable(String),
    /// Neither: an answer that is none, a request that cannot be built, an item that cannot be read.
    Broken(String),
}

impl CallError {
    /// Tells what became of a request. `indeterminate` if one of its attempts may have been carried out
    /// although it was not answered so.
    pub(super) fn new<E>(
        operation: &'static str,
        table: &str,
        error: SdkError<E, HttpResponse>,
        indeterminate: bool,
    ) -> Self
    where
        E: StdError + ProvideErrorMetadata + Into<aws_sdk_dynamodb::Error> + Send + Sync + 'static,
    {
        let kind = match error {
            SdkError::ServiceError(error) => Kind::of_service(error.into_err()),
            SdkError::TimeoutError(_) => Kind::TimedOut,
            SdkError::DispatchFailure(failure) => match failure.as_connector_error() {
                Some(error) if failure.is_io() || failure.is_timeout() || failure.is_other() => {
                    Kind::Unreachable(chain(error))
                }
                Some(error) => Kind::Broken(chain(error)),
                None => Kind::Unreachable("the connection failed".to_owned()),
            },
            other => Kind::Broken(match EmptyResponse::behind(&other) {
                Some(empty) => empty.to_string(),
                None => chain(&other),
            }),
        };
        Self { operation, table: table.to_owned(), kind, indeterminate }
    }

    /// A row or a record that does not say what it should.
    pub(super) fn unreadable(operation: &'static str, table: &str, what: &str) -> Self {
        let kind = Kind::Broken(what.to_owned());
        Self { operation, table: table.to_owned(), kind, indeterminate: false }
    }

    /// A server that goes on refusing without an error code, as `BatchWriteItem` does.
    pub(super) fn throttled(operation: &'static str, table: &str) -> Self {
        let message = "the table is throttled".to_owned();
        let kind = Kind::Service { code: THROTTLED[0].to_owned(), message };
        Self { operation, table: table.to_owned(), kind, indeterminate: false }
    }

    /// Others change the same thing all the time. Nothing was done.
    pub(super) fn contended(operation: &'static str, table: &str) -> Self {
        let message = "others change the same rows all the time".to_owned();
        let kind = Kind::Service { code: TRANSACTION_CONFLICT.to_owned(), message };
        Self { operation, table: table.to_owned(), kind, indeterminate: false }
    }

    /// A table that is not there. `what` says what to do about it.
    pub(super) fn missing_table(operation: &'static str, table: &str, what: &str) -> Self {
        let kind = Kind::Service { code: MISSING.to_owned(), message: what.to_owned() };
        Self { operation, table: table.to_owned(), kind, indeterminate: false }
    }

    /// Notes that something of the call that this request belongs to was done before.
    pub(super) fn after_writes(self, some: bool) -> Self {
        Self { indeterminate: self.indeterminate || some, ..self }
    }

    /// Whether a part of it may have been done all the same.
    pub(super) fn is_indeterminate(&self) -> bool {
        self.indeterminate
    }

    /// DynamoDB's name of the request.
    pub(super) fn operation(&self) -> &'static str {
        self.operation
    }

    /// The condition of a conditional write does not hold.
    pub(super) fn is_condition_failed(&self) -> bool {
        matches!(self.kind, Kind::ConditionFailed(_))
    }

    /// The actions of a cancelled transaction whose conditions do not hold, by their places; none where that
    /// is not why it was cancelled.
    pub(super) fn refused_actions(&self) -> Option<Vec<usize>> {
        let Kind::Cancelled(reasons) = &self.kind else { return None };
        let is_known = |reason: &String| {
            let reason = reason.as_str();
            reason == CONDITION_FAILED || reason == NOT_THIS || NOT_NOW.contains(&reason)
        };
        let refused = reasons.iter().enumerate().filter(|(_, reason)| *reason == CONDITION_FAILED);
        let refused: Vec<usize> = refused.map(|(place, _)| place).collect();
        Some(refused).filter(|refused| !refused.is_empty() && reasons.iter().all(is_known))
    }

    /// The item that a condition was tried on, if it failed there and the server gives it.
    pub(super) fn into_item(self) -> Option<Item> {
        match self.kind {
            Kind::ConditionFailed(item) => item,
            _ => None,
        }
    }

    /// The table does not exist, or is not ready: DynamoDB does not tell these apart here.
    pub(super) fn is_table_missing(&self) -> bool {
        self.code() == Some(MISSING)
    }

    /// The table is there already, or just being made, changed or dropped.
    pub(super) fn is_table_in_use(&self) -> bool {
        self.code() == Some("ResourceInUseException")
    }

    /// Too much was asked for; nothing was done by the last attempt.
    pub(super) fn is_throttled(&self) -> bool {
        match &self.kind {
            Kind::Cancelled(reasons) => is_not_now(reasons.iter().map(String::as_str)),
            _ => self.code().is_some_and(|code| THROTTLED.contains(&code)),
        }
    }

    /// The credentials are wrong, or do not allow it.
    pub(super) fn is_denied(&self) -> bool {
        self.code().is_some_and(|code| DENIED.contains(&code))
    }

    /// No server answered.
    pub(super) fn is_unreachable(&self) -> bool {
        matches!(self.kind, Kind::Unreachable(_) | Kind::TimedOut)
    }

    /// The service's error code.
    pub(super) fn code(&self) -> Option<&str> {
        match &self.kind {
            Kind::Service { code, .. } => Some(code),
            _ => None,
        }
    }
}

impl Kind {
    fn of_service<E: ProvideErrorMetadata + Into<aws_sdk_dynamodb::Error>>(error: E) -> Self {
        let code = error.code().unwrap_or("an error without a code").to_owned();
        let message = one_line(error.message().unwrap_or_default());
        match error.into() {
            aws_sdk_dynamodb::Error::ConditionalCheckFailedException(error) => {
                Self::ConditionFailed(error.item)
            }
            aws_sdk_dynamodb::Error::TransactionCanceledException(error) => {
                let reasons = error.cancellation_reasons().iter().map(code_of);
                Self::Cancelled(reasons.map(str::to_owned).collect())
            }
            _ => Self::Service { code, message },
        }
    }
}

/// Whether a cancelled transaction may be done another time just as it is.
pub(super) fn is_cancelled_for_now(reasons: &[CancellationReason]) -> bool {
    is_not_now(reasons.iter().map(code_of))
}

fn is_not_now<'a>(mut reasons: impl Iterator<Item = &'a str> + Clone) -> bool {
    let mut known = reasons.clone();
    known.all(|reason| reason == NOT_THIS || NOT_NOW.contains(&reason))
        && reasons.any(|reason| reason != NOT_THIS)
}

fn code_of(reason: &CancellationReason) -> &str {
    reason.code().unwrap_or(NOT_THIS)
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, table, .. } = self;
        write!(f, "{operation} on table {table}: ")?;
        match &self.kind {
            Kind::ConditionFailed(_) => f.write_str("the condition does not hold")?,
            Kind::Cancelled(reasons) => {
                write!(f, "the transaction was cancelled: {}", reasons.join(", "))?;
            }
            Kind::Service { code, message } if message.is_empty() => f.write_str(code)?,
            Kind::Service { code, message } => write!(f, "{code}: {message}")?,
            Kind::TimedOut => f.write_str("no answer in time")?,
            Kind::Unreachable(reason) => write!(f, "the server cannot be reached: {reason}")?,
            Kind::Broken(reason) => f.write_str(reason)?,
        }
        if self.indeterminate && self.is_throttled() {
            f.write_str(", after a part of it may have been done")?;
        }
        Ok(())
    }
}

impl StdError for CallError {}

impl From<CallError> for StoreError {
    /// Throttling, and losing to others, is [`StoreError::Busy`] only where nothing was done.
    fn from(error: CallError) -> Self {
        let is_another_time = error.is_throttled() || error.refused_actions().is_some();
        if is_another_time && !error.indeterminate {
            Self::Busy
        } else {
            Self::Failed(error.to_string())
        }
    }
}

/// An error and what caused it, in one line.
pub(super) fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.ends_with(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
        source = error.source();
    }
    one_line(&text)
}

fn one_line(text: &str) -> String {
    let text: String = text.chars().take(MESSAGE_CHARS_MAX).collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
