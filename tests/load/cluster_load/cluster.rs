//! The processes: a DynamoDB server, connection nodes and endpoint nodes with the same keys.

use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Config, Credentials, Region};
use aws_sdk_dynamodb::types::{AttributeValue, Select};
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{sleep, timeout};

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
    store_url: String,
    dir: PathBuf,
    nodes: usize,
    /// The server ends when this is dropped.
    _store: Child,
    /// The folder is removed when this is dropped.
    _temporary: Option<TempDir>,
}

/// A node, which is killed when this is dropped.
pub(crate) struct Node {
    process: Child,
    pub(crate) address: SocketAddr,
    /// The id in router records, if it is a connection node.
    pub(crate) router_url: String,
}

/// The start of the first line of a node.
const GREETING: &str = "Kalends is listening on ";

/// The start of the second line of a connection node.
const ROUTER: &str = "Router port: ";

/// Region and credentials are ignored by the store.
const REGION: &str = "eu-central-1";
const KEY: &str = "key";

/// Maximum time until a process has printed its address.
const START_WAIT: Duration = Duration::from_secs(30);

/// The interval between two counts.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Maximum time until the router records are as expected.
const RECORDS_WAIT: Duration = Duration::from_secs(30);

impl LoadCluster {
    /// Starts the store and generates the keys of all nodes.
    pub(crate) async fn set(programs: Programs) -> Self {
        let (dir, temporary) = folder(programs.keep.as_deref()).expect("a folder can be made");
        let mut command = Command::new(&programs.dynamodb);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut store = command.spawn().expect("--dynamodb can be started");
        let store_url = first_words(&mut store).line_with("http").await;
        let store_url = format!("http{store_url}");
        make_keys(&programs.kalends, &dir).await;
        let nodes = 0;
        Self { programs, store_url, dir, nodes, _store: store, _temporary: temporary }
    }

    /// Starts an endpoint node.
    pub(crate) async fn endpoint_node(&mut self) -> Node {
        self.node("endpoint", &[]).await
    }

    /// Starts a connection node that hands out endpoints of this endpoint node.
    pub(crate) async fn connection_node(&mut self, endpoint: &Node, more: &[String]) -> Node {
        let public_url = format!("--public-url=http://{}", endpoint.address);
        let own = ["--router-listen=127.0.0.1:0".to_owned(), public_url];
        self.node("connection", &[&own, more].concat()).await
    }

    async fn node(&mut self, role: &str, arguments: &[String]) -> Node {
        self.nodes += 1;
        let dir = self.dir.join(format!("{role}{}", self.nodes));
        private_folder(&dir).expect("a folder can be made");
        fs::copy(keys_file(&self.dir), keys_file(&dir)).expect("keys can be copied");
        let log = File::create(dir.join("log")).expect("a log can be made");
        let mut command = Command::new(&self.programs.kalends);
        command.args(["serve", "--role", role]).arg("--data-dir").arg(&dir).args(arguments);
        command.args(["--listen=127.0.0.1:0", "--store=dynamodb"]);
        command.arg(format!("--dynamodb-region={REGION}"));
        command.arg(format!("--dynamodb-endpoint-url={}", self.store_url));
        command.envs([("AWS_ACCESS_KEY_ID", KEY), ("AWS_SECRET_ACCESS_KEY", KEY)]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
        Node::greeted(command.spawn().expect("--kalends can be started"), role).await
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
            .endpoint_url(&self.store_url);
        Client::from_conf(config.build())
    }
}

impl Node {
    async fn greeted(mut process: Child, role: &str) -> Self {
        let mut words = first_words(&mut process);
        let url = words.line_with(GREETING).await;
        let address =
            url.trim_start_matches("http://").parse().expect("the process prints its address");
        let router_url = match role {
            "connection" => words.line_with(ROUTER).await,
            _ => String::new(),
        };
        let router_url = router_url.split(',').next().unwrap_or_default().to_owned();
        Self { process, address, router_url }
    }

    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Sends SIGSTOP: the node exists, and does nothing.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    fn signal(&self, signal: Signal) {
        let pid = self.process.id().and_then(|pid| Pid::from_raw(pid as i32));
        kill_process(pid.expect("the process was not waited for"), signal).expect("the node runs");
    }

    /// Waits for the end of the node; its exit code if it ended in time and by itself.
    pub(crate) async fn ended_within(&mut self, bound: Duration) -> Option<i32> {
        let ended = timeout(bound, self.process.wait()).await.ok()?;
        ended.expect("a process can be waited for").code()
    }

    /// Kills the node with SIGKILL.
    pub(crate) async fn kill(&mut self) {
        self.process.kill().await.expect("the node runs");
    }
}

/// The first lines of a process; later ones are discarded.
struct OutputLines(Lines<BufReader<ChildStdout>>);

fn first_words(process: &mut Child) -> OutputLines {
    OutputLines(BufReader::new(process.stdout.take().expect("it was piped")).lines())
}

impl OutputLines {
    /// The rest of the next line, which must start with this.
    async fn line_with(&mut self, beginning: &str) -> String {
        let line = timeout(START_WAIT, self.0.next_line()).await.expect("a process starts soon");
        let line = line.expect("the process prints UTF-8").unwrap_or_default();
        let rest = line.strip_prefix(beginning);
        rest.unwrap_or_else(|| panic!("{line:?} is not {beginning:?}: use --keep, and see its log"))
            .to_owned()
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
