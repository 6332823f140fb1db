//! What receipts cost, and how soon they arrive, over the public protocol of a server that this starts.
//!
//! ```text
//! receipt_load --kalends PATH [--dynamodb PATH] [--messages 10000] [--rate 200]
//! ```
//!
//! Messages to an absent agent, without receipts and with them in one subscription: CPU µs of the server for a push, and
//! for its delivery and ack. Then messages to a connected agent: from its ack to the event, `--rate` acks a second. Each
//! of the messages must be reported once. One thread.

#![expect(
    clippy::disallowed_methods,
    reason = "a measurement writes files that no power loss meets"
)]

#[expect(dead_code, reason = "each tool uses a part")]
#[path = "shared/mod.rs"]
mod shared;

use std::collections::HashMap;
use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use shared::agent::{Agent, Closed};
use shared::dynamodb::DynamoDb;
use shared::feed::Follower;
use shared::http::Connection;
use shared::percentile::percentile;
use shared::process::Process;
use shared::usage::{CpuTime, resident_kib};

const SENDERS: usize = 16;

/// Measures what receipts cost, and how soon they arrive
#[derive(Debug, Parser)]
struct Args {
    /// The program `kalends`, of a release build
    #[arg(long, value_name = "PATH")]
    kalends: PathBuf,
    /// The DynamoDB server of the tests (target/dynamodb); without it the server has SQLite
    #[arg(long, value_name = "PATH")]
    dynamodb: Option<PathBuf>,
    /// Messages of each of the three parts
    #[arg(long, default_value_t = 10_000)]
    messages: usize,
    /// Messages of the last part that are acked in a second
    #[arg(long, default_value_t = 200)]
    rate: usize,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let home = tempfile::tempdir()?;
    let mut command = Command::new(&args.kalends);
    command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(home.path().join("data"));
    command.args(["--user-messages-max=0", "--channel-messages-max=0", "--user-bytes-max=0"]);
    command.args(["--channel-bytes-max=0", "--receipt-messages-max=1000000"]);
    command.arg("--subscription-pushes-per-minute-max=0");
    command.env("KALENDS_METRICS_LISTEN", "off");
    let _store = match &args.dynamodb {
        None => None,
        Some(program) => {
            let store = DynamoDb::start(program).await?;
            store.configure(&mut command);
            Some(store)
        }
    };
    let server = Process::start(command, &home.path().join("log")).await?;
    let load = Load { address: server.address, pid: server.pid(), messages: args.messages };
    for wanted in [false, true] {
        load.stored(wanted).await?;
    }
    load.reported(args.rate).await
}

struct Load {
    address: SocketAddr,
    pid: u32,
    messages: usize,
}

/// What a push of this load is sent to, and with.
#[derive(Clone)]
struct Target {
    path: String,
    /// The path of the subscription; none without receipts.
    receipts: Option<String>,
}

impl Load {
    async fn stored(&self, wanted: bool) -> Result<(), Box<dyn Error>> {
        let (agent, path) = self.agent().await;
        let uaid = agent.uaid.clone();
        agent.leave().await;
        let receipts = if wanted { Some(self.subscription(&path).await?) } else { None };
        let target = Target { path, receipts };
        let before = CpuTime::of(self.pid)?;
        self.push_all(&target).await?;
        let pushed = CpuTime::of(self.pid)?;
        let count = self.messages + usize::from(wanted);
        let mut agent = Agent::try_enter(self.address, Some(&uaid)).await.expect("it is admitted");
        for _ in 0..count {
            let got = agent.receive().await.map_err(closed)?;
            agent.ack(&got).await;
        }
        // Deletes and publications that are still pending belong to the cost.
        sleep(Duration::from_secs(1)).await;
        let acked = CpuTime::of(self.pid)?;
        let each = |to: &CpuTime, from: &CpuTime| to.us_since(from) / self.messages as f64;
        println!(
            "{} stored messages {} receipts: {:.1} µs CPU for a push, {:.1} µs for delivery and ack",
            self.messages,
            if wanted { "with" } else { "without" },
            each(&pushed, &before),
            each(&acked, &pushed),
        );
        Ok(())
    }

    async fn reported(&self, rate: usize) -> Result<(), Box<dyn Error>> {
        let (mut agent, path) = self.agent().await;
        let receipts = self.subscription(&path).await?;
        let first = agent.receive().await.map_err(closed)?;
        agent.ack(&first).await;
        let (report, mut seen) = mpsc::unbounded_channel();
        tokio::spawn(read_events(self.address, receipts.clone(), report));
        seen.recv().await.ok_or("the stream ended")?;
        let target = Target { path, receipts: Some(receipts) };
        let mut sender = Connection::open(self.address).await?;
        let (began, mut times) = (Instant::now(), Vec::with_capacity(self.messages));
        let mut reported = HashMap::new();
        for number in 0..self.messages {
            sleep_until(began + Duration::from_micros(number as u64 * 1_000_000 / rate as u64))
                .await;
            sender.request(self.push(&target).as_bytes()).await?;
            let got = agent.receive().await.map_err(closed)?;
            let acked = Instant::now();
            agent.ack(&got).await;
            let (message, at) = seen.recv().await.ok_or("the stream ended")?;
            times.push(at.duration_since(acked).as_secs_f64() * 1000.0);
            *reported.entry(message).or_insert(0) += 1;
        }
        sleep(Duration::from_secs(1)).await;
        if seen.try_recv().is_ok() || reported.len() != self.messages {
            return Err(format!("{} messages are reported, some twice", reported.len()).into());
        }
        times.sort_unstable_by(f64::total_cmp);
        let [half, most] = [50, 99].map(|percent| percentile(&times, percent));
        println!(
            "{} messages on one subscription, each reported once: {half:.1} ms from ack to event, \
             p99 {most:.1} ms",
            self.messages
        );
        println!("resident memory of the server: {:.0} KiB", resident_kib(self.pid)?);
        Ok(())
    }

    /// A connected agent, and the path of its endpoint.
    async fn agent(&self) -> (Agent, String) {
        let mut agent = Agent::try_enter(self.address, None).await.expect("it is admitted");
        let endpoint = agent.try_register().await.expect("it is registered");
        let (_, path) = endpoint.split_once("/wpush/").expect("it is an endpoint");
        (agent, format!("/wpush/{path}"))
    }

    /// Pushes a message, and returns the path of its receipt subscription.
    async fn subscription(&self, path: &str) -> Result<String, Box<dyn Error>> {
        let target = Target { path: path.to_owned(), receipts: Some(String::new()) };
        let mut stream = TcpStream::connect(self.address).await?;
        let request =
            self.push(&target).replace("content-length", "connection: close\r\ncontent-length");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let (_, rest) = answer.split_once("/receipts/").ok_or_else(|| answer.clone())?;
        let (token, _) = rest.split_once('>').ok_or("a link ends")?;
        Ok(format!("/receipts/{token}"))
    }

    async fn push_all(&self, target: &Target) -> Result<(), Box<dyn Error>> {
        let mut running = JoinSet::new();
        for sender in 0..SENDERS {
            let count = (sender..self.messages).step_by(SENDERS).count();
            let (address, request) = (self.address, self.push(target));
            let status = if target.receipts.is_some() { 202 } else { 201 };
            running.spawn(async move {
                let mut connection = Connection::open(address).await?;
                for _ in 0..count {
                    let answered = connection.request(request.as_bytes()).await?;
                    if answered != status {
                        return Err(std::io::Error::other(format!("answered {answered}")));
                    }
                }
                Ok(())
            });
        }
        running.join_all().await.into_iter().collect::<Result<(), _>>()?;
        Ok(())
    }

    fn push(&self, target: &Target) -> String {
        let wish = match &target.receipts {
            None => String::new(),
            Some(path) if path.is_empty() => "prefer: respond-async\r\n".to_owned(),
            Some(path) => format!(
                "prefer: respond-async\r\nlink: <{path}>; rel=\"urn:ietf:params:push:receipt\"\r\n"
            ),
        };
        format!(
            "POST {} HTTP/1.1\r\nhost: {}\r\nttl: 3600\r\n{wish}content-encoding: aes128gcm\r\n\
             content-length: 100\r\n\r\n{}",
            target.path,
            self.address,
            "x".repeat(100)
        )
    }
}

fn closed(Closed(code): Closed) -> String {
    format!("the node closed the connection with {code:?}")
}

/// Reports each event of the stream, its message and its time.
async fn read_events(
    address: SocketAddr,
    path: String,
    report: mpsc::UnboundedSender<(String, Instant)>,
) -> std::io::Result<()> {
    let head = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n");
    let mut events = Follower::open(address, &head).await?;
    loop {
        let message = events.data().await?["message"].as_str().unwrap_or_default().to_owned();
        if report.send((message, Instant::now())).is_err() {
            return Ok(());
        }
    }
}
