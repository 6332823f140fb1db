//! Which errors are retried, and whether an earlier attempt of a failed request may have been
//! executed.

use std::cell::Cell;

use aws_sdk_dynamodb::config::interceptors::{FinalizerInterceptorContextMut, InterceptorContext};
use aws_sdk_dynamodb::config::retry::{ClassifyRetry, RetryAction};
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_sdk_dynamodb::operation::transact_get_items::TransactGetItemsError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;

use crate::error::{
    EmptyResponse, REPLICATED_CONFLICT, TRANSACTION_CONFLICT, is_cancelled_for_now,
};

tokio::task_local! {
    /// Whether an attempt of the present request of this task had no clear result.
    static INDETERMINATE: Cell<bool>;
}

/// Waits for a request, and returns whether one of its attempts may have been executed although it
/// failed: a lost reply, or an error of the server itself.
pub(crate) async fn track_indeterminate<F: Future>(request: F) -> (F::Output, bool) {
    INDETERMINATE
        .scope(Cell::new(false), async {
            let output = request.await;
            (output, INDETERMINATE.with(Cell::get))
        })
        .await
}

/// Adds DynamoDB's conflicts to the errors that the SDK retries, and marks indeterminate attempts.
/// The SDK calls it after each attempt, the last included.
#[derive(Debug)]
pub(crate) struct Classifier;

impl ClassifyRetry for Classifier {
    fn classify_retry(&self, attempt: &InterceptorContext) -> RetryAction {
        if !attempt.is_failed() {
            return RetryAction::NoActionIndicated;
        }
        if !is_refused(attempt) {
            // An error means that no caller tracks the request.
            let _outside = INDETERMINATE.try_with(|indeterminate| indeterminate.set(true));
        }
        let codes = [TRANSACTION_CONFLICT, REPLICATED_CONFLICT];
        if codes.iter().any(|code| has_code(attempt, code)) || is_transaction_for_later(attempt) {
            RetryAction::throttling_error()
        } else {
            RetryAction::NoActionIndicated
        }
    }

    fn name(&self) -> &'static str {
        "DynamoDB conflicts"
    }
}

/// Whether the service itself rejected the attempt.
fn is_refused(attempt: &InterceptorContext) -> bool {
    attempt.response().is_some_and(|response| response.status().is_client_error())
}

/// Whether a transaction was cancelled only by throttling or another transaction. The retry has the
/// same token, so that it is not executed twice.
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

/// Looks for an error code in the reply: the SDK has one error type per operation, without a common
/// code.
fn has_code(attempt: &InterceptorContext, code: &str) -> bool {
    let body = attempt.response().and_then(|response| response.body().bytes()).unwrap_or_default();
    body.windows(code.len()).any(|part| part == code.as_bytes())
}

/// Treats successful replies without a body, as a failing proxy sends them, as errors. DynamoDB
/// sends at least `{}`. The SDK would read an empty reply to `GetItem` as a missing item, and the
/// agent would lose its uaid.
#[derive(Debug)]
pub(crate) struct EmptyResponseInterceptor;

/// The SDK's classifiers retry "bad gateway", and ours treats it as indeterminate.
const BAD_GATEWAY: u16 = 502;

impl Intercept for EmptyResponseInterceptor {
    fn name(&self) -> &'static str {
        "replies without a body"
    }

    /// Runs after the body was read.
    fn modify_before_attempt_completion(
        &self,
        attempt: &mut FinalizerInterceptorContextMut<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let was_parsed = attempt.output_or_error().is_some_and(|output| output.is_ok());
        let Some(reply) = attempt.response_mut().filter(|_| was_parsed) else { return Ok(()) };
        if reply.body().bytes().is_none_or(|body| !body.is_empty()) {
            return Ok(());
        }
        let status = reply.status().as_u16();
        *reply.status_mut() = BAD_GATEWAY.try_into().expect("it is a status code");
        Err(EmptyResponse(status).into())
    }
}
