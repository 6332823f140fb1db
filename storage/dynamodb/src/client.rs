//! The only caller of the SDK: limits concurrent requests, and names operation and table in every
//! error.

use std::error::Error as StdError;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use state_machine::Span;
use state_machine::backoff::Backoff;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::error::{CallError, Item};
use crate::names::{ALL_TABLES, Names};
use crate::options::DynamoOptions;
use crate::retries;

/// One of so many connections is reserved for the router table.
const ROUTER_SHARE: usize = 4;

#[derive(Debug)]
pub struct DynamoClient {
    /// Builds requests; [`DynamoClient::call`] sends them.
    pub(crate) sdk: Client,
    pub(crate) names: Names,
    pub(crate) options: DynamoOptions,
    /// Permits for concurrent requests on the router table and for lists of tables, which go on
    /// while message tables hang.
    router_connections: Semaphore,
    /// Permits for concurrent requests on every other table.
    connections: Semaphore,
    /// Rows that were skipped because they could not be decoded.
    unreadable: AtomicU64,
    /// Messages that were deleted for another one.
    gave_way: AtomicU64,
}

impl DynamoClient {
    pub(crate) fn new(sdk: Client, options: &DynamoOptions) -> Self {
        let of_router = (options.connections_max / ROUTER_SHARE).max(1);
        let of_others = options.connections_max.saturating_sub(of_router).max(1);
        Self {
            sdk,
            names: Names::new(&options.table_prefix, &options.message_prefix),
            options: options.clone(),
            router_connections: Semaphore::new(of_router),
            connections: Semaphore::new(of_others),
            unreadable: AtomicU64::new(0),
            gave_way: AtomicU64::new(0),
        }
    }

    /// Sends a request, with as many attempts as the options allow.
    ///
    /// `operation` is DynamoDB's name of it, for the text of an error. Boxed, because the SDK's
    /// requests are tens of kilobytes, and callers hold them across their own waits.
    pub(crate) fn call<'a, T, E>(
        &'a self,
        operation: &'static str,
        table: &'a str,
        request: impl Future<Output = Result<T, SdkError<E, HttpResponse>>> + Send + 'a,
    ) -> BoxFuture<'a, Result<T, CallError>>
    where
        T: Send + 'a,
        E: StdError + ProvideErrorMetadata + Into<aws_sdk_dynamodb::Error> + Send + Sync + 'static,
    {
        let request = self.call_tracked(operation, table, request);
        Box::pin(async move { request.await.map(|(answer, _)| answer) })
    }

    /// As [`Self::call`]. Returns whether an attempt before the answered one may have been executed too.
    pub(crate) fn call_tracked<'a, T, E>(
        &'a self,
        operation: &'static str,
        table: &'a str,
        request: impl Future<Output = Result<T, SdkError<E, HttpResponse>>> + Send + 'a,
    ) -> BoxFuture<'a, Result<(T, bool), CallError>>
    where
        T: Send,
        E: StdError + ProvideErrorMetadata + Into<aws_sdk_dynamodb::Error> + Send + Sync + 'static,
    {
        let request = Box::pin(retries::track_indeterminate(request));
        Box::pin(async move {
            let _under_way = self.connection(operation, table).await?;
            match request.await {
                (Ok(answer), indeterminate) => Ok((answer, indeterminate)),
                (Err(error), indeterminate) => {
                    Err(CallError::new(operation, table, error, indeterminate))
                }
            }
        })
    }

    /// Waits for a connection, as long as a request may take. After an error the request was not
    /// sent.
    async fn connection(
        &self,
        operation: &'static str,
        table: &str,
    ) -> Result<SemaphorePermit<'_>, CallError> {
        let is_routing = table == self.names.router || table == ALL_TABLES;
        let connections = if is_routing { &self.router_connections } else { &self.connections };
        match timeout(self.options.operation_timeout, connections.acquire()).await {
            Ok(permit) => Ok(permit.expect("it is never closed")),
            Err(_late) => Err(CallError::throttled(operation, table)),
        }
    }

    /// Reads an item consistently.
    pub(crate) async fn get(&self, table: &str, key: Item) -> Result<Option<Item>, CallError> {
        let request = self.sdk.get_item().table_name(table).set_key(Some(key));
        Ok(self.call("GetItem", table, request.consistent_read(true).send()).await?.item)
    }

    /// Reads a page of at most `limit` items consistently. Returns them and the start of the next
    /// page.
    pub(crate) async fn scan(
        &self,
        table: &str,
        projection: Option<&str>,
        start: Option<Item>,
        limit: Option<i32>,
    ) -> Result<(Vec<Item>, Option<Item>), CallError> {
        let request = self.sdk.scan().table_name(table).consistent_read(true).set_limit(limit);
        let request = request.set_projection_expression(projection.map(str::to_owned));
        let request = request.set_exclusive_start_key(start).send();
        let page = self.call("Scan", table, request).await?;
        Ok((page.items.unwrap_or_default(), page.last_evaluated_key))
    }

    /// Runs requests that each write one row or leave it, some concurrently, and all of them also if
    /// one fails: none is under way when the call is answered. Returns how many wrote, and the first
    /// error.
    pub(crate) async fn write_rows<F: Future<Output = Result<bool, E>>, E>(
        &self,
        requests: Vec<F>,
    ) -> (usize, Result<(), E>) {
        let at_once = self.options.rows_in_flight_max.max(1);
        let done = stream::iter(requests).buffer_unordered(at_once).collect::<Vec<_>>().await;
        let written = done.iter().filter(|done| matches!(done, Ok(true))).count();
        (written, done.into_iter().try_for_each(|done| done.map(|_is_written| ())))
    }

    /// Counts a row that is skipped because it cannot be decoded.
    pub(crate) fn count_unreadable(&self) {
        self.unreadable.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_gave_way(&self, messages: usize) {
        self.gave_way.fetch_add(messages as u64, Relaxed);
    }

    pub(crate) fn gave_way(&self) -> u64 {
        self.gave_way.load(Relaxed)
    }

    /// How often a row of a message table was skipped since the engine was opened because it could
    /// not be decoded. Such rows are deleted with their month.
    pub fn unreadable(&self) -> u64 {
        self.unreadable.load(Relaxed)
    }

    /// The pause before a request that the SDK does not repeat by itself, such as the rest of a
    /// batch, is sent again. `attempt` counts from 1.
    pub(crate) fn pause_before(&self, attempt: u32) -> Duration {
        let [initial, max] = [self.options.backoff_initial, self.options.backoff_max]
            .map(|pause| Span(pause.as_millis() as u64));
        Duration::from_millis(Backoff::delay(initial, max, attempt.saturating_sub(1)).0)
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::Config;
    use aws_sdk_dynamodb::config::BehaviorVersion;

    use super::*;
    use crate::test_options::options;
    use storage::store::StoreError;

    fn client(connections_max: usize) -> DynamoClient {
        let operation_timeout = Duration::from_millis(20);
        let options = DynamoOptions { connections_max, operation_timeout, ..options() };
        let config = Config::builder().behavior_version(BehaviorVersion::latest()).build();
        DynamoClient::new(Client::from_conf(config), &options)
    }

    async fn refusal(client: &DynamoClient, table: &str) -> Option<StoreError> {
        client.connection("GetItem", table).await.err().map(StoreError::from)
    }

    #[tokio::test]
    async fn a_request_without_a_free_connection_is_busy() {
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
