//! Load for feeds and broadcasts, over the public protocol only.
//!
//! ```text
//! feed_load publish   ADDRESS TOKEN PID [SENDERS] [PUTS]             PUTs a second, CPU µs of the server for one
//! feed_load lag       ADDRESS TOKEN PID [CONSUMERS] [PUTS] [RATE]    PUT to event, for consumers of server-sent events
//! feed_load broadcast ADDRESS TOKEN PID [AGENTS] [CHANGES]           one change for agents that subscribed to it
//! ```
//!
//! TOKEN has read and write scope for the feed it names, which is `broadcasts` for the last. One thread.

#![expect(
    clippy::disallowed_methods,
    reason = "a measurement writes files that no power loss meets"
)]

#[expect(dead_code, reason = "each tool uses a part")]
#[path = "shared/mod.rs"]
mod shared;

use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use shared::agent::Agent;
use shared::feed::Feed;
use shared::http::Connection;
use shared::percentile::percentile;
use shared::usage::{CpuTime, resident_kib};

const KEYS: usize = 1000;
const BROADCAST: &str = "load/changes";

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [mode, address, token, pid, numbers @ ..] = &args[..] else { return misused() };
    let numbers: Result<Vec<usize>, _> = numbers.iter().map(|text| text.parse()).collect();
    let (Ok(pid), Ok(numbers)) = (pid.parse(), numbers) else { return misused() };
    let number = |at: usize, default: usize| numbers.get(at).copied().unwrap_or(default);
    let feed = Feed::new(address.to_owned(), token.to_owned());
    let load = Load { feed, pid, started: Instant::now() };
    match mode.as_str() {
        "publish" => load.publish(number(0, 16), number(1, 20_000)).await,
        "lag" => load.lag(number(0, 100), number(1, 2000), number(2, 100)).await,
        "broadcast" => load.broadcast(number(0, 10_000), number(1, 3)).await,
        _ => return misused(),
    }
    ExitCode::SUCCESS
}

fn misused() -> ExitCode {
    eprintln!(
        "usage: feed_load publish|lag|broadcast ADDRESS TOKEN PID [NUMBER...], see the top of \
         tests/load/feed_load.rs"
    );
    ExitCode::from(2)
}

#[derive(Clone)]
struct Load {
    feed: Feed,
    pid: u32,
    /// The origin of all times.
    started: Instant,
}

/// A connection that is kept for consecutive requests.
struct Sender {
    load: Load,
    connection: Connection,
}

impl Load {
    async fn publish(self, senders: usize, puts: usize) {
        self.sender().await.put("warm-up", "0").await;
        let (cpu, began) = (self.cpu(), Instant::now());
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
        let each = self.cpu().us_since(&cpu) / puts as f64;
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
        let (cpu, began) = (self.cpu(), Instant::now());
        for number in 0..puts {
            sleep_until(began + Duration::from_micros(number as u64 * 1_000_000 / rate as u64))
                .await;
            sender.put(&key(number), &self.now_us().to_string()).await;
        }
        let mut seen = Vec::with_capacity(puts * consumers);
        while seen.len() < puts * consumers {
            seen.push(lags.recv().await.expect("consumers go on"));
        }
        let each = self.cpu().us_since(&cpu) / seen.len() as f64;
        seen.sort_unstable_by(f64::total_cmp);
        println!(
            "{puts} puts at {rate}/s to {consumers} consumers: p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms, \
             {each:.1} µs CPU of the server for one update to one consumer",
            percentile(&seen, 50),
            percentile(&seen, 99),
            percentile(&seen, 100)
        );
    }

    /// Reports the lag of each update of the feed, in ms.
    async fn consume(self, report: mpsc::UnboundedSender<f64>) {
        let mut follower = self.feed.follow().await.expect("connected");
        loop {
            let value = follower.value().await.expect("the stream goes on");
            let sent: u64 = value.parse().expect("a time");
            let lag_us = self.now_us().saturating_sub(sent);
            if report.send(lag_us as f64 / 1000.0).is_err() {
                return;
            }
        }
    }

    async fn broadcast(self, agents: usize, changes: usize) {
        let mut sender = self.sender().await;
        sender.put(BROADCAST, "before").await;
        let idle = self.resident_kib();
        let run = std::process::id();
        let (report, mut signals) = mpsc::unbounded_channel();
        let mut sockets = JoinSet::new();
        for _ in 0..agents {
            let version = "before".to_owned();
            sockets.spawn(self.clone().agent(version, report.clone()));
            // Connections that the server accepts within its limit.
            if sockets.len().is_multiple_of(200) {
                sleep(Duration::from_millis(50)).await;
            }
        }
        await_all(&mut signals, agents, "ready").await;
        sleep(Duration::from_secs(2)).await;
        let each = (self.resident_kib() - idle) / agents as f64;
        println!("{agents} agents subscribed, {each:.1} KiB resident each");
        for change in 0..changes {
            let (cpu, began) = (self.cpu(), Instant::now());
            let version = format!("change-{change}-of-{run}");
            sender.put(BROADCAST, &version).await;
            await_all(&mut signals, agents, &version).await;
            let took = began.elapsed().as_secs_f64();
            let each = self.cpu().us_since(&cpu) / agents as f64;
            println!(
                "{version}: delivered to all after {took:.1} s, {each:.1} µs CPU of the server for an agent"
            );
        }
    }

    /// Sends `ready` after the subscription, and then each version that arrives.
    async fn agent(self, version: String, report: mpsc::UnboundedSender<String>) {
        let node = self.feed.address.parse().expect("an address");
        let mut agent = Agent::try_enter(node, None).await.expect("connected");
        let broadcasts = json!({ BROADCAST: version });
        let subscribe = json!({"messageType": "broadcast_subscribe", "broadcasts": broadcasts});
        agent.send_json(&subscribe).await;
        // The answer to a ping follows the answers to all earlier messages.
        agent.send_json(&json!({})).await;
        while let Ok(received) = agent.receive().await {
            let message = match received["broadcasts"][BROADCAST].as_str() {
                Some(version) => version.to_owned(),
                None if received == json!({}) => "ready".to_owned(),
                // The first version may not be published yet.
                None => continue,
            };
            if report.send(message).is_err() {
                return;
            }
        }
    }

    async fn sender(&self) -> Sender {
        let connection = Connection::open(&self.feed.address).await.expect("connected");
        Sender { load: self.clone(), connection }
    }

    fn now_us(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }

    fn cpu(&self) -> CpuTime {
        CpuTime::of(self.pid).expect("a process")
    }

    fn resident_kib(&self) -> f64 {
        resident_kib(self.pid).expect("a process")
    }
}

/// Waits until so many agents report this, and ignores versions of before.
async fn await_all(signals: &mut mpsc::UnboundedReceiver<String>, agents: usize, signal: &str) {
    let mut reported = 0;
    while reported < agents {
        let received = signals.recv().await.expect("a sender is kept");
        reported += usize::from(received == signal);
    }
}

impl Sender {
    async fn put(&mut self, key: &str, value: &str) {
        self.load.feed.put(&mut self.connection, key, value).await.expect("written");
    }
}

fn key(number: usize) -> String {
    format!("key-{}", number % KEYS)
}
