//! Load for feeds and broadcasts, over the public protocol only.
//!
//! ```text
//! feed_load publish   ADDRESS TOKEN PID [SENDERS] [PUTS]             PUTs a second, CPU µs of the server for one
//! feed_load lag       ADDRESS TOKEN PID [CONSUMERS] [PUTS] [RATE]    PUT to event, for consumers of server-sent events
//! feed_load broadcast ADDRESS TOKEN PID [AGENTS] [CHANGES]           one change for agents that subscribed to it
//! ```
//!
//! TOKEN has read and write scope for the feed it names, which is `broadcasts` for the last. One thread.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_tungstenite::tungstenite::Message;

const KEYS: usize = 1000;
const BROADCAST: &str = "load/changes";

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [mode, address, token, pid, numbers @ ..] = &args[..] else {
        panic!("MODE ADDRESS TOKEN PID, see the top of tests/load/feed_load.rs");
    };
    let number = |at: usize, default: usize| {
        numbers.get(at).map_or(default, |text| text.parse().expect("a number"))
    };
    let load = Load::new(address, token, pid);
    match mode.as_str() {
        "publish" => load.publish(number(0, 16), number(1, 20_000)).await,
        "lag" => load.lag(number(0, 100), number(1, 2000), number(2, 100)).await,
        "broadcast" => load.broadcast(number(0, 10_000), number(1, 3)).await,
        _ => panic!("MODE is publish, lag or broadcast"),
    }
}

#[derive(Clone)]
struct Load {
    address: String,
    token: String,
    pid: String,
    /// The origin of all times.
    started: Instant,
}

/// A connection that is kept for consecutive requests.
struct Sender {
    load: Load,
    stream: BufReader<TcpStream>,
}

impl Load {
    fn new(address: &str, token: &str, pid: &str) -> Self {
        let (address, token, pid) = (address.to_owned(), token.to_owned(), pid.to_owned());
        Self { address, token, pid, started: Instant::now() }
    }

    fn feed(&self) -> &str {
        self.token.split('.').nth(2).expect("a token names its feed")
    }

    async fn publish(self, senders: usize, puts: usize) {
        self.sender().await.put("warm-up", "0").await;
        let (cpu, began) = (self.cpu_us(), Instant::now());
        let mut running = JoinSet::new();
        for sender in 0..senders {
            let load = self.clone();
            running.spawn(async move {
                let mut connection = load.sender().await;
                for number in (sender..puts).step_by(senders) {
                    connection.put(&key(number), "a value of some length").await;
                }
            });
        }
        running.join_all().await;
        let rate = puts as f64 / began.elapsed().as_secs_f64();
        // Publications that are still pending belong to the cost.
        sleep(Duration::from_secs(1)).await;
        let each = (self.cpu_us() - cpu) / puts as f64;
        println!(
            "{puts} puts by {senders} senders: {rate:.0} /s, {each:.1} µs CPU of the server each"
        );
    }

    async fn lag(self, consumers: usize, puts: usize, rate: usize) {
        let mut sender = self.sender().await;
        sender.put("warm-up", &self.now_us().to_string()).await;
        let (report, mut lags) = mpsc::unbounded_channel();
        for _ in 0..consumers {
            tokio::spawn(self.clone().consume(report.clone()));
        }
        for _ in 0..consumers {
            lags.recv().await.expect("a consumer sees what is there");
        }
        let (cpu, began) = (self.cpu_us(), Instant::now());
        for number in 0..puts {
            sleep_until(began + Duration::from_micros(number as u64 * 1_000_000 / rate as u64))
                .await;
            sender.put(&key(number), &self.now_us().to_string()).await;
        }
        let mut seen = Vec::with_capacity(puts * consumers);
        while seen.len() < puts * consumers {
            seen.push(lags.recv().await.expect("consumers go on"));
        }
        let each = (self.cpu_us() - cpu) / seen.len() as f64;
        seen.sort_unstable();
        println!(
            "{puts} puts at {rate}/s to {consumers} consumers: p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms, \
             {each:.1} µs CPU of the server for one update to one consumer",
            percentile(&seen, 50),
            percentile(&seen, 99),
            percentile(&seen, 100)
        );
    }

    /// Reports the lag of each update of the feed, in µs.
    async fn consume(self, report: mpsc::UnboundedSender<u64>) {
        let mut stream = TcpStream::connect(&self.address).await.expect("connected");
        let request = format!(
            "GET /v1/feeds/{} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
             Accept: text/event-stream\r\n\r\n",
            self.feed(),
            self.address,
            self.token
        );
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut lines = BufReader::new(stream).lines();
        while let Some(line) = lines.next_line().await.expect("read") {
            let Some(data) = line.strip_prefix("data:") else { continue };
            let update: serde_json::Value = serde_json::from_str(data).expect("an update is JSON");
            let sent: u64 =
                update["value"].as_str().and_then(|text| text.parse().ok()).expect("a time");
            if report.send(self.now_us().saturating_sub(sent)).is_err() {
                return;
            }
        }
    }

    async fn broadcast(self, agents: usize, changes: usize) {
        let mut sender = self.sender().await;
        sender.put(BROADCAST, "before").await;
        let idle = self.resident_kib();
        let (report, mut signalled_at) = mpsc::unbounded_channel();
        let mut sockets = JoinSet::new();
        for _ in 0..agents {
            let version = "before".to_owned();
            sockets.spawn(self.clone().agent(version, report.clone()));
            // Connections that the server accepts within its limit.
            if sockets.len().is_multiple_of(200) {
                sleep(Duration::from_millis(50)).await;
            }
        }
        for _ in 0..agents {
            assert_eq!(signalled_at.recv().await.as_deref(), Some("ready"));
        }
        sleep(Duration::from_secs(2)).await;
        let each = (self.resident_kib() - idle) / agents as f64;
        println!("{agents} agents subscribed, {each:.1} KiB resident each");
        for change in 0..changes {
            let (cpu, began) = (self.cpu_us(), Instant::now());
            let version = format!("change-{change}");
            sender.put(BROADCAST, &version).await;
            for _ in 0..agents {
                assert_eq!(signalled_at.recv().await.as_ref(), Some(&version));
            }
            let took = began.elapsed().as_secs_f64();
            let each = (self.cpu_us() - cpu) / agents as f64;
            println!(
                "{version}: delivered to all after {took:.1} s, {each:.1} µs CPU of the server for an agent"
            );
        }
    }

    /// Sends `ready` after the subscription, and then each version that arrives.
    async fn agent(self, version: String, report: mpsc::UnboundedSender<String>) {
        let url = format!("ws://{}/", self.address);
        let (mut socket, _) = tokio_tungstenite::connect_async(url).await.expect("connected");
        let hello = r#"{"messageType":"hello","use_webpush":true,"broadcasts":{}}"#;
        socket.send(Message::text(hello)).await.expect("said");
        socket.next().await.expect("answered").expect("hello");
        let broadcasts = serde_json::json!({ BROADCAST: version });
        let subscribe =
            serde_json::json!({"messageType": "broadcast_subscribe", "broadcasts": broadcasts});
        socket.send(Message::text(subscribe.to_string())).await.expect("said");
        // The answer to a ping follows the answers to all earlier messages.
        socket.send(Message::text("{}")).await.expect("said");
        while let Some(Ok(message)) = socket.next().await {
            let Message::Text(text) = message else { continue };
            let received: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            let message = match received["broadcasts"][BROADCAST].as_str() {
                Some(version) => version.to_owned(),
                None => "ready".to_owned(),
            };
            if report.send(message).is_err() {
                return;
            }
        }
    }

    async fn sender(&self) -> Sender {
        let stream = TcpStream::connect(&self.address).await.expect("connected");
        stream.set_nodelay(true).expect("a TCP stream");
        Sender { load: self.clone(), stream: BufReader::new(stream) }
    }

    fn now_us(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }

    /// User and system time of the server so far, in µs; Linux counts in units of 10 ms.
    fn cpu_us(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).expect("a process");
        let fields: Vec<&str> = stat.rsplit(')').next().expect("has a name").split(' ').collect();
        let ticks = |at: usize| fields[at].parse::<f64>().expect("a number");
        (ticks(12) + ticks(13)) * 10_000.0
    }

    fn resident_kib(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid));
        let status = status.expect("a process");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }
}

impl Sender {
    async fn put(&mut self, key: &str, value: &str) {
        let request = format!(
            "PUT /v1/feeds/{}/{key} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
             Content-Length: {}\r\n\r\n{value}",
            self.load.feed(),
            self.load.address,
            self.load.token,
            value.len()
        );
        self.stream.write_all(request.as_bytes()).await.expect("sent");
        let mut status = String::new();
        self.stream.read_line(&mut status).await.expect("answered");
        let status = status.split(' ').nth(1).map(str::to_owned);
        assert!(matches!(status.as_deref(), Some("200" | "201")), "a PUT was answered {status:?}");
        let mut length = 0;
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).await.expect("read");
            match line.trim().split_once(": ") {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.parse().expect("a number");
                }
                Some(_) => {}
                None => break,
            }
        }
        self.stream.read_exact(&mut vec![0; length]).await.expect("read");
    }
}

fn key(number: usize) -> String {
    format!("key-{}", number % KEYS)
}

fn percentile(sorted_us: &[u64], percent: usize) -> f64 {
    let at = (sorted_us.len() * percent / 100).min(sorted_us.len() - 1);
    sorted_us[at] as f64 / 1000.0
}
