//! Kalends with its tables in DynamoDB.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{
    BehaviorVersion, Config, Credentials, Region, SharedCredentialsProvider,
};

use super::server::Launch;

/// The region, which the test server ignores.
pub(crate) const REGION: &str = "eu-central-1";

/// The credentials, which the test server ignores.
const KEY: &str = "key";
const SECRET: &str = "secret";

/// A server with its tables at this endpoint.
pub(crate) fn launch(endpoint_url: &str) -> Launch {
    let variables = [("AWS_ACCESS_KEY_ID", KEY), ("AWS_SECRET_ACCESS_KEY", SECRET)];
    let variables = variables.map(|(name, value)| (name, value.to_owned())).to_vec();
    Launch { variables, ..Launch::default() }.with(&[
        "--store=dynamodb".to_owned(),
        format!("--dynamodb-region={REGION}"),
        format!("--dynamodb-endpoint-url={endpoint_url}"),
    ])
}

/// The same credentials for a client of the test itself.
pub(crate) fn credentials() -> SharedCredentialsProvider {
    SharedCredentialsProvider::new(Credentials::new(KEY, SECRET, None, None, "the test"))
}

/// A DynamoDB client of the test itself.
pub(crate) fn client(endpoint_url: &str) -> Client {
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(REGION))
        .credentials_provider(credentials())
        .endpoint_url(endpoint_url);
    Client::from_conf(config.build())
}
