//! What is tried again, and whether a request that was refused in the end may have been done before.

use std::cell::Cell;

use aws_sdk_dynamodb::config::interceptors::InterceptorContext;
use aws_sdk_dynamodb::config::retry::{ClassifyRetry, RetryAction};
use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::operation::{
    batch_write_item::BatchWriteItemError, delete_item::DeleteItemError, get_item::GetItemError,
    put_item::PutItemError, query::QueryError, scan::ScanError,
    transact_get_items::TransactGetItemsError, transact_write_items::TransactWriteItemsError,
    update_item::UpdateItemError,
};

use super::error::{REPLICATED_CONFLICT, TRANSACTION_CONFLICT, is_cancelled_for_now};

tokio::task_local! {
    /// Whether an attempt of the request that this task is waiting for had no clear answer.
    static INDETERMINATE: Cell<bool>;
}

/// Waits for a request, and tells whether one of its attempts may have been carried out unseen: a
/// reply that was lost, or an error of the server itself.
pub(super) async fn track_indeterminate<F: Future>(request: F) -> (F::Output, bool) {
    INDETERMINATE
        .scope(Cell::new(false), async {
            let output = request.await;
            (output, INDETERMINATE.with(Cell::get))
        })
        .await
}

/// Adds to the SDK's own classifiers what is worth another attempt in DynamoDB, and remembers doubts.
/// The SDK asks after each attempt, the last included.
#[derive(Debug)]
pub(super) struct Classifier;

impl ClassifyRetry for Classifier {
    fn classify_retry(&self, attempt: &InterceptorContext) -> RetryAction {
        if !attempt.is_failed() {
            return RetryAction::NoActionIndicated;
        }
        if !is_refused(attempt) {
            // Outside of a scope nobody asks.
            let _outside = INDETERMINATE.try_with(|indeterminate| indeterminate.set(true));
        }
        match code(attempt) {
            Some(TRANSACTION_CONFLICT | REPLICATED_CONFLICT) => RetryAction::throttling_error(),
            _ if is_transaction_for_later(attempt) => RetryAction::throttling_error(),
            _ => RetryAction::NoActionIndicated,
        }
    }

    fn name(&self) -> &'static str {
        "DynamoDB conflicts"
    }
}

/// Whether the service itself said that it did nothing.
fn is_refused(attempt: &InterceptorContext) -> bool {
    attempt.response().is_some_and(|response| response.status().is_client_error())
}

/// Whether a transaction was cancelled only by what passes: throttling, or another's transaction. It is made again with
/// the token that the SDK gave it, so that it is not done twice.
fn is_transaction_for_later(attempt: &InterceptorContext) -> bool {
    let error = attempt.output_or_error().and_then(|output| output.err());
    let Some(error) = error.and_then(|error| error.as_operation_error()) else { return false };
    let reasons = match (error.downcast_ref(), error.downcast_ref()) {
        (Some(TransactWriteItemsError::TransactionCanceledException(error)), _)
        | (_, Some(TransactGetItemsError::TransactionCanceledException(error))) => {
            error.cancellation_reasons()
        }
        _ => return false,
    };
    is_cancelled_for_now(reasons)
}

fn code(attempt: &InterceptorContext) -> Option<&str> {
    let error = attempt.output_or_error()?.err()?.as_operation_error()?;
    macro_rules! of {
        ($($operation:ty),*) => {
            None$(.or_else(|| error.downcast_ref::<$operation>().and_then(|error| error.code())))*
        };
    }
    of!(
        GetItemError,
        PutItemError,
        UpdateItemError,
        DeleteItemError,
        QueryError,
        ScanError,
        BatchWriteItemError,
        TransactGetItemsError,
        TransactWriteItemsError
    )
}
