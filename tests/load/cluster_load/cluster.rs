//! The processes: a DynamoDB server, connection nodes and endpoint nodes with the same keys.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Config, Credentials, Region};
use aws_sdk_dynamodb::types::{AttributeValue, Select};
use clap::Args;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use super::shared::dynamodb::{DynamoDb, KEY, REGION};
use super::shared::process::Process;

/// The programs to measure.
#[derive(Debug, Clone, Args)]
pub(crate) struct Programs {
    /// The program `kalends`, of a release build
    #[arg(long, value_name = "PATH")]
    kalends: PathBuf,
    /// A DynamoDB server that prints its URL first, and ends with its standard input
    /// (tests/dynamodb)
    #[arg(long, value_name = "PATH")]
    dynamodb: PathBuf,
    /// Keeps the nodes' data and logs here, in a new folder, instead of removing them
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

/// The resources that all nodes share.
pub(crate) struct LoadCluster {
    programs: Programs,
    store: DynamoDb,
    dir: PathBuf,
    nodes: usize,
    /// The folder is removed when this is dropped.
    _temporary: Option<TempDir>,
}

/// A node, which is killed when this is dropped.
pub(crate) struct Node {
    pub(crate) process: Process,
    /// The id in router records, if it is a connection node.
    pub(crate) router_url: String,
}

/// The start of the second line of a connection node.
const ROUTER: &str = "Router port: ";

/// The interval between two counts.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Maximum time until the router records are as expected.
const RECORDS_WAIT: Duration = Duration::from_secs(30);

impl LoadCluster {
    /// Starts the store and generates the keys of all nodes.
    pub(crate) async fn set(programs: Programs) -> Self {
        let (dir, temporary) = folder(programs.keep.as_deref()).expect("a folder can be made");
        let store = DynamoDb::start(&programs.dynamodb).await.expect("--dynamodb can be started");
        make_keys(&programs.kalends, &dir).await;
        Self { programs, store, dir, nodes: 0, _temporary: temporary }
    }

    /// Starts an endpoint node.
    pub(crate) async fn endpoint_node(&mut self) -> Node {
        self.node("endpoint", &[]).await
    }

    /// Starts a connection node that hands out endpoints of this endpoint node.
    pub(crate) async fn connection_node(&mut self, endpoint: &Node, more: &[String]) -> Node {
        let public_url = format!("--public-url=http://{}", endpoint.process.address);
        let own = ["--router-listen=127.0.0.1:0".to_owned(), public_url];
        self.node("connection", &[&own, more].concat()).await
    }

    async fn node(&mut self, role: &str, arguments: &[String]) -> Node {
        self.nodes += 1;
        let dir = self.dir.join(format!("{role}{}", self.nodes));
        private_folder(&dir).expect("a folder can be made");
        fs::copy(keys_file(&self.dir), keys_file(&dir)).expect("keys can be copied");
        let mut command = Command::new(&self.programs.kalends);
        command.args(["serve", "--role", role]).arg("--data-dir").arg(&dir).args(arguments);
        command.arg("--listen=127.0.0.1:0");
        self.store.configure(&mut command);
        let process = Process::start(command, &dir.join("log")).await;
        let mut process = process.unwrap_or_else(|error| panic!("{error}"));
        let router_url = match role {
            "connection" => process.line().await,
            _ => String::new(),
        };
        let router_url = router_url.strip_prefix(ROUTER).and_then(|rest| rest.split(',').next());
        Node { router_url: router_url.unwrap_or_default().to_owned(), process }
    }

    /// The number of router records that name this node.
    pub(crate) async fn records_that_name(&self, node: &Node) -> i32 {
        let (client, mut count, mut from) = (self.client(), 0, None);
        loop {
            let scan = client.scan().table_name("router").select(Select::Count);
            let scan = scan.consistent_read(true).filter_expression("node_id = :node");
            let named = AttributeValue::S(node.router_url.clone());
            let scan = scan.expression_attribute_values(":node", named);
            let page = scan.set_exclusive_start_key(from).send().await.expect("the store answers");
            count += page.count;
            from = page.last_evaluated_key;
            if from.is_none() {
                return count;
            }
        }
    }

    /// Waits until this number of router records name this node.
    pub(crate) async fn until_records_name(&self, node: &Node, count: usize) {
        let settled = async {
            while self.records_that_name(node).await != count as i32 {
                sleep(POLL_INTERVAL).await;
            }
        };
        timeout(RECORDS_WAIT, settled).await.expect("records are as the user agents are");
    }

    fn client(&self) -> Client {
        let config = Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(REGION))
            .credentials_provider(Credentials::new(KEY, KEY, None, None, "the load"))
            .endpoint_url(&self.store.url);
        Client::from_conf(config.build())
    }
}

/// A new folder, and the guard that removes it.
fn folder(keep: Option<&Path>) -> io::Result<(PathBuf, Option<TempDir>)> {
    if let Some(dir) = keep {
        private_folder(dir)?;
        return Ok((dir.to_owned(), None));
    }
    let dir = TempDir::new()?;
    Ok((dir.path().to_owned(), Some(dir)))
}

fn private_folder(dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(dir)
}

async fn make_keys(kalends: &Path, dir: &Path) {
    let mut command = Command::new(kalends);
    let made = command.args(["keys", "cluster", "--data-dir"]).arg(dir).stdout(Stdio::null());
    assert!(made.status().await.expect("--kalends can be started").success());
}

fn keys_file(dir: &Path) -> PathBuf {
    dir.join("keys.toml")
}
