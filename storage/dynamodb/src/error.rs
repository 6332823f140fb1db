//! Errors of requests, and their mapping to the errors of the contract.

use std::collections::HashMap;
use std::error::Error as StdError;

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::{AttributeValue, CancellationReason};
use storage::store::StoreError;

pub(crate) type Item = HashMap<String, AttributeValue>;

/// The length to which a service's message is cut, for a log line.
const MESSAGE_CHARS_MAX: usize = 300;

/// Error codes of temporary refusals, before anything was done.
pub(crate) const THROTTLED: [&str; 9] = [
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
/// Another request's transaction holds the item.
pub(crate) const TRANSACTION_CONFLICT: &str = "TransactionConflictException";
/// Another region is writing the item.
pub(crate) const REPLICATED_CONFLICT: &str = "ReplicatedWriteConflictException";

/// The cancellation reason of an action whose condition does not hold.
const CONDITION_FAILED: &str = "ConditionalCheckFailed";
/// The cancellation reasons of temporary refusals.
const NOT_NOW: [&str; 3] =
    ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"];
/// The cancellation reason of an action that did not cancel the transaction.
const NOT_THIS: &str = "None";

const MISSING: &str = "ResourceNotFoundException";

/// Error codes of invalid or insufficient credentials.
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

/// A failed request: operation, table and the service's message, never a key or a value.
#[derive(Debug, thiserror::Error)]
#[error("{operation} on table {table}: {kind}{}", partly_done(.kind, *.indeterminate))]
pub struct CallError {
    operation: &'static str,
    table: String,
    kind: Kind,
    /// Whether a part of the request, or of the call it belongs to, may have been executed.
    indeterminate: bool,
}

#[derive(Debug, thiserror::Error)]
enum Kind {
    /// With the present item if the server returns it.
    #[error("the condition does not hold")]
    ConditionFailed(Option<Item>),
    /// With the reason of each action.
    #[error("the transaction was cancelled: {}", .0.join(", "))]
    Cancelled(Vec<String>),
    /// The service rejected the request.
    #[error("{code}{}{message}", if .message.is_empty() { "" } else { ": " })]
    Service { code: String, message: String },
    #[error("no answer in time")]
    TimedOut,
    /// There is no connection, or it broke.
    #[error("the server cannot be reached: {0}")]
    Unreachable(String),
    /// An invalid reply, a request that cannot be built, or an item that cannot be decoded.
    #[error("{0}")]
    Broken(String),
}

/// A successful reply without a body, with its status.
#[derive(Debug, thiserror::Error)]
#[error("the server answered {0} without a body")]
pub(crate) struct EmptyResponse(pub(crate) u16);

impl EmptyResponse {
    /// Finds an empty response among the causes of an error.
    pub(crate) fn behind<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Self> {
        match error.downcast_ref() {
            Some(empty) => Some(empty),
            None => Self::behind(error.source()?),
        }
    }
}

impl CallError {
    /// Maps an error of the SDK. `indeterminate` if an attempt may have been executed.
    pub(crate) fn new<E>(
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

    /// A row that cannot be decoded, or a table in a wrong state.
    pub(crate) fn unreadable(operation: &'static str, table: &str, what: &str) -> Self {
        let kind = Kind::Broken(what.to_owned());
        Self { operation, table: table.to_owned(), kind, indeterminate: false }
    }

    /// A refusal without an error code, as `BatchWriteItem` has it.
    pub(crate) fn throttled(operation: &'static str, table: &str) -> Self {
        Self::service(operation, table, THROTTLED[0], "the table is throttled")
    }

    /// Concurrent changes of the same rows. Nothing was done.
    pub(crate) fn contended(operation: &'static str, table: &str) -> Self {
        let message = "others change the same rows all the time";
        Self::service(operation, table, TRANSACTION_CONFLICT, message)
    }

    /// A missing table, with the remedy.
    pub(crate) fn missing_table(operation: &'static str, table: &str, remedy: &str) -> Self {
        Self::service(operation, table, MISSING, remedy)
    }

    fn service(operation: &'static str, table: &str, code: &str, message: &str) -> Self {
        let kind = Kind::Service { code: code.to_owned(), message: message.to_owned() };
        Self { operation, table: table.to_owned(), kind, indeterminate: false }
    }

    /// Marks the error as indeterminate if the call has written before.
    pub(crate) fn after_writes(self, some: bool) -> Self {
        Self { indeterminate: self.indeterminate || some, ..self }
    }

    pub(crate) fn is_indeterminate(&self) -> bool {
        self.indeterminate
    }

    pub(crate) fn operation(&self) -> &'static str {
        self.operation
    }

    pub(crate) fn is_condition_failed(&self) -> bool {
        matches!(self.kind, Kind::ConditionFailed(_))
    }

    /// The indexes of the actions whose conditions do not hold; none if the transaction was not
    /// cancelled, or for another reason.
    pub(crate) fn refused_actions(&self) -> Option<Vec<usize>> {
        let Kind::Cancelled(reasons) = &self.kind else { return None };
        let is_known = |reason: &String| {
            let reason = reason.as_str();
            reason == CONDITION_FAILED || reason == NOT_THIS || NOT_NOW.contains(&reason)
        };
        let refused = reasons.iter().enumerate().filter(|(_, reason)| *reason == CONDITION_FAILED);
        let refused: Vec<usize> = refused.map(|(index, _)| index).collect();
        Some(refused).filter(|refused| !refused.is_empty() && reasons.iter().all(is_known))
    }

    /// The present item, if a condition failed and the server returned it.
    pub(crate) fn into_item(self) -> Option<Item> {
        match self.kind {
            Kind::ConditionFailed(item) => item,
            _ => None,
        }
    }

    /// The table does not exist or is being created: DynamoDB has one code for both.
    pub(crate) fn is_table_missing(&self) -> bool {
        self.code() == Some(MISSING)
    }

    /// The table exists already, or is being created, changed or dropped.
    pub(crate) fn is_table_in_use(&self) -> bool {
        self.code() == Some("ResourceInUseException")
    }

    /// The credentials are invalid or insufficient.
    pub(crate) fn is_denied(&self) -> bool {
        self.code().is_some_and(|code| DENIED.contains(&code))
    }

    pub(crate) fn is_unreachable(&self) -> bool {
        matches!(self.kind, Kind::Unreachable(_) | Kind::TimedOut)
    }

    pub(crate) fn code(&self) -> Option<&str> {
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

    /// The last attempt was refused for the load or a conflict, and did nothing.
    fn is_throttled(&self) -> bool {
        match self {
            Self::Cancelled(reasons) => is_not_now(reasons.iter().map(String::as_str)),
            Self::Service { code, .. } => THROTTLED.contains(&code.as_str()),
            _ => false,
        }
    }
}

/// Whether a cancelled transaction may be repeated unchanged.
pub(crate) fn is_cancelled_for_now(reasons: &[CancellationReason]) -> bool {
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

fn partly_done(kind: &Kind, indeterminate: bool) -> &'static str {
    let is_partly = indeterminate && kind.is_throttled();
    if is_partly { ", after a part of it may have been done" } else { "" }
}

impl From<CallError> for StoreError {
    /// Throttling and conflicts are [`StoreError::Busy`] only if nothing was done.
    fn from(error: CallError) -> Self {
        let is_another_time = error.kind.is_throttled() || error.refused_actions().is_some();
        if is_another_time && !error.indeterminate {
            Self::Busy
        } else {
            Self::Failed(error.to_string())
        }
    }
}

/// None if the table is missing.
pub(crate) fn if_table<T>(done: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match done {
        Err(error) if error.is_table_missing() => Ok(None),
        done => done.map(Some),
    }
}

/// Whether a conditional write was applied: not if its condition does not hold.
pub(crate) fn applied<T>(written: Result<T, CallError>) -> Result<bool, CallError> {
    match written {
        Ok(_written) => Ok(true),
        Err(error) if error.is_condition_failed() => Ok(false),
        Err(error) => Err(error),
    }
}

/// The same for a write whose condition fails once it was applied: after an indeterminate attempt,
/// that attempt applied it, or another process did so meanwhile.
pub(crate) fn applied_once<T>(written: Result<T, CallError>) -> Result<bool, CallError> {
    match written {
        Err(error) if error.is_condition_failed() => Ok(error.is_indeterminate()),
        written => applied(written),
    }
}

/// An error and its causes in one line.
pub(crate) fn chain(error: &dyn StdError) -> String {
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
