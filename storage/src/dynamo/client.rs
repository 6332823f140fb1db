//! The way to DynamoDB: the client, the names of the tables, and how a request is made.

use std::error::Error as StdError;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use futures_util::future::BoxFuture;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::error::CallError;
use super::names::Names;
use super::options::DynamoOptions;
use super::retries;
use super::tables::ALL_TABLES;

/// Which part of the connections is the router table's own: one of so many.
const ROUTER_SHARE: usize = 4;

/// What every operation of the engine needs.
#[derive(Debug)]
pub(super) struct DynamoClient {
    /// Builds requests. They are made by [`DynamoClient::call`].
    pub(super) sdk: Client,
    /// What the tables are called.
    pub(super) names: Names,
    /// What the operator set.
    pub(super) options: DynamoOptions,
    /// A permit for each request that may be under way on the router table, or asks which tables there
    /// are: what goes on while message tables hang.
    router_connections: Semaphore,
    /// The same for every other table.
    connections: Semaphore,
    /// Rows that made no sense.
    unreadable: AtomicU64,
}

impl DynamoClient {
    pub(super) fn new(sdk: Client, options: &DynamoOptions) -> Self {
        let of_router = (options.connections_max / ROUTER_SHARE).max(1);
        let of_others = options.connections_max.saturating_sub(of_router).max(1);
        Self {
            sdk,
            names: Names::new(options),
            options: options.clone(),
            router_connections: Semaphore::new(of_router),
            connections: Semaphore::new(of_others),
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
        let request = Box::pin(retries::track_indeterminate(request));
        Box::pin(async move {
            let _under_way = self.connection(operation, table).await?;
            let (answer, indeterminate) = request.await;
            answer.map_err(|error| CallError::new(operation, table, error, indeterminate))
        })
    }

    /// Waits for a connection, as long as a request may take. An error means that the request was not made.
    async fn connection(
        &self,
        operation: &'static str,
        table: &str,
    ) -> Result<SemaphorePermit<'_>, CallError> {
        let is_routing = table == self.names.router() || table == ALL_TABLES;
        let connections = if is_routing { &self.router_connections } else { &self.connections };
        match timeout(self.options.operation_timeout, connections.acquire()).await {
            Ok(permit) => Ok(permit.expect("it is never closed")),
            // Too much is asked of the table for its pace, whatever the reason of that.
            Err(_late) => Err(CallError::throttled(operation, table)),
        }
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

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::Config;
    use aws_sdk_dynamodb::config::BehaviorVersion;

    use super::*;
    use crate::store::StoreError;

    fn client(connections_max: usize) -> DynamoClient {
        let operation_timeout = Duration::from_millis(20);
        let options =
            DynamoOptions { connections_max, operation_timeout, ..DynamoOptions::default() };
        let config = Config::builder().behavior_version(BehaviorVersion::latest()).build();
        DynamoClient::new(Client::from_conf(config), &options)
    }

    async fn refusal(client: &DynamoClient, table: &str) -> Option<StoreError> {
        client.connection("GetItem", table).await.err().map(StoreError::from)
    }

    #[tokio::test]
    async fn a_connection_that_does_not_come_is_busy() {
        let client = client(8);
        let _under_way = client.connections.acquire_many(6).await.unwrap();
        assert_eq!(refusal(&client, "message_2026_11").await, Some(StoreError::Busy));
        let _routing = client.router_connections.acquire_many(2).await.unwrap();
        assert_eq!(refusal(&client, "router").await, Some(StoreError::Busy));
    }

    #[tokio::test]
    async fn message_tables_take_no_connection_of_the_router_tables() {
        for connections_max in [1, 2, 256] {
            let client = client(connections_max);
            let all = client.connections.available_permits() as u32;
            let _under_way = client.connections.acquire_many(all).await.unwrap();
            assert_eq!(refusal(&client, "router").await, None);
            assert_eq!(refusal(&client, ALL_TABLES).await, None);
            assert_eq!(refusal(&client, "message_2026_11").await, Some(StoreError::Busy));
        }
    }
}
