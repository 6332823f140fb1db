//! Treats successful replies without a body, as a failing proxy sends them, as errors. DynamoDB
//! sends at least `{}`. The SDK would read an empty reply to `GetItem` as a missing item, and the
//! agent would lose its uaid.

use std::error::Error as StdError;

use aws_sdk_dynamodb::config::interceptors::FinalizerInterceptorContextMut;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;

#[derive(Debug)]
pub(super) struct EmptyResponseInterceptor;

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

#[derive(Debug, thiserror::Error)]
#[error("the server answered {0} without a body")]
pub(super) struct EmptyResponse(u16);

impl EmptyResponse {
    /// Finds an empty response among the causes of an error.
    pub(super) fn behind<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Self> {
        match error.downcast_ref() {
            Some(empty) => Some(empty),
            None => Self::behind(error.source()?),
        }
    }
}
