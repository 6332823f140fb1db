//! The way to DynamoDB: the client, the names of the tables, and how a request is made.

use std::error::Error as StdError;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;

use super::error::CallError;
use super::names::Names;
use super::options::DynamoOptions;
use super::retries;

/// What every operation of the engine needs.
#[derive(Debug)]
pub(super) struct Link {
    /// Builds requests. They are made by [`Link::call`].
    pub(super) client: Client,
    /// What the tables are called.
    pub(super) names: Names,
    /// What the operator set.
    pub(super) options: DynamoOptions,
    /// A permit for each request under way.
    connections: Semaphore,
    /// Rows that made no sense.
    unreadable: AtomicU64,
}

impl Link {
    pub(super) fn new(client: Client, options: &DynamoOptions) -> Self {
        Self {
            client,
            names: Names::new(options),
            options: options.clone(),
            connections: Semaphore::new(options.connections_max.max(1)),
            unreadable: AtomicU64::new(0),
        }
    }

    /// Makes a request, tried again as often as the options say.
    ///
    /// `operation` is DynamoDB's name of it, for the text of an error. Boxed, because the SDK's
    /// requests are tens of kilobytes, and callers hold them across their own waits.
    pub(super) fn call<'a, T, E>(
        &'a self,
        operation: &'static str,
        table: &'a str,
        request: impl Future<Output = Result<T, SdkError<E, HttpResponse>>> + Send + 'a,
    ) -> BoxFuture<'a, Result<T, CallError>>
    where
        T: Send,
        E: StdError + ProvideErrorMetadata + Into<aws_sdk_dynamodb::Error> + Send + Sync + 'static,
    {
        let request = Box::pin(retries::with_doubts(request));
        Box::pin(async move {
            let _under_way = self.connections.acquire().await.expect("it is never closed");
            let (answer, doubtful) = request.await;
            answer.map_err(|error| CallError::new(operation, table, error, doubtful))
        })
    }

    /// Notes a row that is passed over because it makes no sense.
    pub(super) fn count_unreadable(&self) {
        self.unreadable.fetch_add(1, Relaxed);
    }

    /// How many there were.
    pub(super) fn unreadable(&self) -> u64 {
        self.unreadable.load(Relaxed)
    }

    /// The pause before a request is made once more that the SDK does not repeat by itself, such as
    /// the rest of a batch. `attempt` counts from 1.
    pub(super) fn pause_before(&self, attempt: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(attempt.saturating_sub(1));
        self.options.backoff_initial.saturating_mul(doubled).min(self.options.backoff_max)
    }
}
