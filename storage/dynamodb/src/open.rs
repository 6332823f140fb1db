//! Opens an engine: credentials, region, server and router table.

use std::io;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::{RetryConfig, RetryPartition, TokenBucket};
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{
    Config, ProvideCredentials, SharedCredentialsProvider, SharedHttpClient,
};

use crate::client::DynamoClient;
use crate::error::{CallError, chain};
use crate::options::DynamoOptions;
use crate::retries::{Classifier, EmptyResponseInterceptor};
use crate::tables;

/// Why the tables cannot be used. Nothing was changed, except for created tables.
#[derive(Debug, thiserror::Error)]
pub enum DynamoOpenError {
    #[error("`{0}` is not the URL of a server: it begins with http:// or https://")]
    Endpoint(String),
    #[error(
        "no AWS region is set: name one, or set AWS_REGION; any name will do for a server of your own"
    )]
    NoRegion,
    #[error(
        "no AWS credentials are found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give this machine a role \
         ({0})"
    )]
    NoCredentials(String),
    /// The credentials are invalid or insufficient.
    #[error("the AWS credentials are refused by {server}: {reason}")]
    Refused { server: String, reason: String },
    #[error("no DynamoDB is reached at {server}, look at the endpoint and the region: {reason}")]
    Unreachable { server: String, reason: String },
    /// The router table is missing and may not be created.
    #[error("there is no table {table} at {server}")]
    RouterMissing { table: String, server: String },
    /// The server replies with another error.
    #[error("{0}")]
    Failed(String),
    #[error("cannot start the threads of the DynamoDB engine: {0}")]
    Thread(io::Error),
}

/// Replacements of the environment, for tests.
#[derive(Debug, Clone, Default)]
pub struct TestOverrides {
    pub credentials: Option<SharedCredentialsProvider>,
    pub http_client: Option<SharedHttpClient>,
}

/// Makes a client and ensures the router table.
pub(crate) async fn client(
    options: &DynamoOptions,
    overrides: TestOverrides,
) -> Result<DynamoClient, DynamoOpenError> {
    let environment = environment(options, overrides).await?;
    let sdk = Client::from_conf(config(&environment, options));
    let client = DynamoClient::new(sdk, options);
    match tables::ensure_router(&client).await {
        Ok(()) => Ok(client),
        Err(error) => Err(explain(&error, &client, &server(options, &environment))),
    }
}

async fn environment(
    options: &DynamoOptions,
    overrides: TestOverrides,
) -> Result<SdkConfig, DynamoOpenError> {
    let mut loader =
        aws_config::defaults(BehaviorVersion::latest()).timeout_config(timeouts(options));
    if let Some(region) = &options.region {
        loader = loader.region(Region::new(region.clone()));
    }
    if let Some(url) = &options.endpoint_url {
        check_endpoint(url)?;
        loader = loader.endpoint_url(url);
    }
    if let Some(credentials) = overrides.credentials {
        loader = loader.credentials_provider(credentials);
    }
    if let Some(http_client) = overrides.http_client {
        loader = loader.http_client(http_client);
    }
    let environment = loader.load().await;
    if environment.region().is_none() {
        return Err(DynamoOpenError::NoRegion);
    }
    check_credentials(&environment).await?;
    Ok(environment)
}

fn check_endpoint(url: &str) -> Result<(), DynamoOpenError> {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    match rest {
        Some(rest) if !rest.is_empty() && !rest.contains(char::is_whitespace) => Ok(()),
        _ => Err(DynamoOpenError::Endpoint(url.to_owned())),
    }
}

async fn check_credentials(environment: &SdkConfig) -> Result<(), DynamoOpenError> {
    let none = || DynamoOpenError::NoCredentials("nothing provides them".to_owned());
    let provider = environment.credentials_provider().ok_or_else(none)?;
    match provider.provide_credentials().await {
        Ok(_known) => Ok(()),
        Err(error) => Err(DynamoOpenError::NoCredentials(chain(&error))),
    }
}

fn config(environment: &SdkConfig, options: &DynamoOptions) -> Config {
    let retries = RetryConfig::standard()
        .with_max_attempts(options.attempts_max.max(1))
        .with_initial_backoff(options.backoff_initial)
        .with_max_backoff(options.backoff_max);
    let no_hidden_budget = RetryPartition::custom("kalends").token_bucket(TokenBucket::unlimited());
    aws_sdk_dynamodb::config::Builder::from(environment)
        .retry_config(retries)
        .retry_partition(no_hidden_budget.build())
        .retry_classifier(Classifier)
        .interceptor(EmptyResponseInterceptor)
        .timeout_config(timeouts(options))
        .build()
}

fn timeouts(options: &DynamoOptions) -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(options.connect_timeout)
        .operation_attempt_timeout(options.attempt_timeout)
        .operation_timeout(options.operation_timeout)
        .build()
}

/// The server's URL or region, for an error.
fn server(options: &DynamoOptions, environment: &SdkConfig) -> String {
    match (&options.endpoint_url, environment.region()) {
        (Some(url), _) => url.clone(),
        (None, Some(region)) => format!("AWS {region}"),
        (None, None) => "AWS".to_owned(),
    }
}

fn explain(error: &CallError, client: &DynamoClient, server: &str) -> DynamoOpenError {
    let server = server.to_owned();
    let reason = error.to_string();
    if error.is_denied() {
        DynamoOpenError::Refused { server, reason }
    } else if error.is_unreachable() {
        DynamoOpenError::Unreachable { server, reason }
    } else if error.is_table_missing() {
        DynamoOpenError::RouterMissing { table: client.names.router.clone(), server }
    } else {
        DynamoOpenError::Failed(format!("{reason} (at {server})"))
    }
}
