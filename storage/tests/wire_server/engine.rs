//! The DynamoDB engine on the wire server that all tests of a process share, each with tables of
//! its own. Include this file with `#[path]`.

#[path = "options.rs"]
pub(crate) mod options;
#[path = "mod.rs"]
pub(crate) mod wire_server;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use aws_sdk_dynamodb::config::{Credentials, SharedCredentialsProvider, SharedHttpClient};
use storage_dynamodb::{Dynamo, DynamoOptions, TestOverrides};

/// Options for tables with an unused prefix.
pub(crate) fn fresh_tables() -> DynamoOptions {
    static CASES: AtomicU32 = AtomicU32::new(0);
    let case = CASES.fetch_add(1, Ordering::Relaxed);
    DynamoOptions {
        endpoint_url: Some(wire_server::shared().url.clone()),
        region: Some("eu-central-1".to_owned()),
        table_prefix: format!("case{case}-"),
        ..options::options()
    }
}

/// Opens the tables, which keep their rows until the next call.
pub(crate) fn open(options: &DynamoOptions) -> Arc<Dynamo> {
    let opened = storage_dynamodb::open_with(options, overrides(None));
    Arc::new(opened.expect("the wire server makes its tables"))
}

/// Credentials, and what answers in place of the server, if anything does.
pub(crate) fn overrides(http_client: Option<SharedHttpClient>) -> TestOverrides {
    TestOverrides { credentials: Some(credentials()), http_client }
}

/// The server believes any.
pub(crate) fn credentials() -> SharedCredentialsProvider {
    SharedCredentialsProvider::new(Credentials::new("key", "secret", None, None, "the test"))
}
