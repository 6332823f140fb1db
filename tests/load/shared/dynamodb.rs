//! The DynamoDB server of the tests, and how a node finds it.

use std::io;
use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// Region and credentials are ignored by the store.
pub(crate) const REGION: &str = "eu-central-1";
pub(crate) const KEY: &str = "key";

/// The server, which ends when this is dropped.
pub(crate) struct DynamoDb {
    pub(crate) url: String,
    _process: Child,
}

impl DynamoDb {
    pub(crate) async fn start(program: &Path) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn()?;
        let output = process.stdout.take().expect("it was piped");
        let url = BufReader::new(output).lines().next_line().await?;
        let url = url.ok_or_else(|| io::Error::other("the DynamoDB server printed no address"))?;
        Ok(Self { url, _process: process })
    }

    /// Makes `kalends serve` use this store.
    pub(crate) fn configure(&self, serve: &mut Command) {
        serve.args(["--store=dynamodb", &format!("--dynamodb-region={REGION}")]);
        serve.arg(format!("--dynamodb-endpoint-url={}", self.url));
        serve.envs([("AWS_ACCESS_KEY_ID", KEY), ("AWS_SECRET_ACCESS_KEY", KEY)]);
    }
}
