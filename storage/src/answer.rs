//! How a call of a store is answered.

use std::future::ready;

use futures_util::TryFutureExt;
use futures_util::future::BoxFuture;
use state_machine::Month;
use state_machine::store::StoreAnswer;

/// The pending result of a call.
pub type StoreFuture<T> = BoxFuture<'static, Result<T, StoreError>>;

/// Why a call of a store failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The engine's queue is full or the table is throttled. Nothing was done, and the caller may
    /// try again later.
    #[error("the store is busy, try again")]
    Busy,
    /// The disk has too little space for this write, and nothing of it was done. The caller may try again later.
    #[error("the disk has too little free space: free some, or move another file away from it")]
    NoSpace,
    /// The month's table was not created yet, or was dropped.
    #[error("there is no message table for {0}")]
    NoSuchMonth(Month),
    /// The engine is shutting down.
    #[error("the store is closed")]
    Closed,
    /// The engine does not support the operation; the text is for an operator.
    #[error("{0}")]
    Unsupported(&'static str),
    /// The engine failed. The text is for an operator's log, never for a peer.
    #[error("{0}")]
    Failed(String),
}

/// The answer of an operation, from what it has returned.
pub fn answer<T: 'static>(
    pending: StoreFuture<T>,
    answer: fn(T) -> StoreAnswer,
) -> StoreFuture<StoreAnswer> {
    Box::pin(pending.map_ok(answer))
}

/// A result that is ready, as that of a read.
pub fn answered<T: Send + 'static>(result: Result<T, StoreError>) -> StoreFuture<T> {
    Box::pin(ready(result))
}
