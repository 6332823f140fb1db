//! Replies of success without a body, as a proxy gives them. DynamoDB always says something, if only `{}`;
//! the SDK would take the reply of a `GetItem` for "there is no such item", and an agent would lose
//! its uaid by it.

use std::error::Error as StdError;

use aws_sdk_dynamodb::config::interceptors::FinalizerInterceptorContextMut;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;

/// Makes them errors that are tried again.
#[derive(Debug)]
pub(super) struct EmptyResponseInterceptor;

/// The SDK's own classifiers have "bad gateway" tried again, and ours calls it indeterminate.
const BAD_GATEWAY: u16 = 502;

impl Intercept for EmptyResponseInterceptor {
    fn name(&self) -> &'static str {
        "replies without a body"
    }

    /// The body was read by now, whatever its headers say of its length.
    fn modify_before_attempt_completion(
        &self,
        attempt: &mut FinalizerInterceptorContextMut<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let taken_for_good = attempt.output_or_error().is_some_and(|output| output.is_ok());
        let Some(reply) = attempt.response_mut().filter(|_| taken_for_good) else { return Ok(()) };
        if reply.body().bytes().is_none_or(|body| !body.is_empty()) {
            return Ok(());
        }
        let status = reply.status().as_u16();
        *reply.status_mut() = BAD_GATEWAY.try_into().expect("it is a status code");
        Err(EmptyResponse(status).into())
    }
}

/// A reply of success without a body.
#[derive(Debug, thiserror::Error)]
#[error("the server answered {0} without a body")]
pub(super) struct EmptyResponse(u16);

impl EmptyResponse {
    /// Whether an error of the SDK came from one; then it is this.
    pub(super) fn behind<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Self> {
        match error.downcast_ref() {
            Some(empty) => Some(empty),
            None => Self::behind(error.source()?),
        }
    }
}
