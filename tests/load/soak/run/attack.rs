//! The attacks. Each uses what a stranger has: the public port.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::ValueEnum;
use state_machine::{Month, Time};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_tungstenite::tungstenite::http::HeaderValue;

use super::Plan;
use super::server::{Room, Server};
use crate::shared::agent::Agent;
use crate::shared::sender::Sender;
use crate::shared::vapid::authorization;

/// Connections of an attacker that works on several.
const CONNECTIONS: usize = 32;

/// Messages of each agent that reconnects.
const BACKLOG: usize = 128;

/// Channels that an attacker registers with each new agent.
const CHANNELS: usize = 4;

/// Agents that neither read nor ack.
const SILENT_AGENTS: usize = 300;

/// Files that a server may open whose files are used up, and connections that the attacker attempts.
const FILES: u32 = 1024;

/// The disk of a server whose disk is full, and what is free of it: too little for messages, enough for registers.
const DISK_MIB: u32 = 64;
const FREE_BYTES: u64 = 12 << 20;

/// Agents that stay connected.
const IDLE_AGENTS: usize = 4000;

/// The address of an attacker behind a proxy.
const FORWARDED: &str = "203.0.113.1";

/// The smallest drain of an old month: then its messages are moved.
const DRAIN_WAIT: &str = "--drain-wait-ms=100";

const PAYLOAD_BYTES: usize = 4096;
const HOUR_S: u64 = 60 * 60;
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Attack {
    /// No attack: the floor of the run
    None,
    /// Stores messages of 4 KiB for one agent, over 32 connections
    Fill,
    /// Sends invalid WebSocket handshakes over one connection
    Upgrades,
    /// Moves agents with many waiting messages to a new month
    Carry,
    /// Makes new agents with channels
    Records,
    /// Reconnects agents for which 128 messages wait, which they do not read
    Backlogs,
    /// Opens more connections than a server with 1,024 files has
    Handles,
    /// Pushes to agents that neither read nor ack, and breaks handshakes off
    Slow,
    /// Exceeds the limit of a subscription
    Subscription,
    /// Exceeds the limit of a VAPID key, with one channel for each of 32 connections
    Key,
    /// Exceeds the limits of an address behind a trusted proxy: of pushes, connections, new agents and registers
    Address,
    /// Pushes to an agent whose messages have no space on the disk
    Disk,
    /// Keeps 4,000 agents connected
    Idle,
    /// Sends frames over two connections as fast as the server takes them
    Frames,
    /// Sends requests over 32 connections and reads no answer
    Pipelines,
}

/// An attack that is ready to begin.
#[derive(Clone)]
pub(crate) struct Prepared {
    attack: Attack,
    address: SocketAddr,
    /// The agents that it uses: uaid and endpoint.
    agents: Arc<[(String, String)]>,
    /// The header of its application server.
    authorization: Arc<str>,
    /// What it has done, and what was refused.
    done: Arc<AtomicU64>,
    refused: Arc<AtomicU64>,
}

impl Attack {
    /// Whether the attack needs a server that was started for it.
    pub(crate) fn owns_server(self) -> bool {
        let (arguments, room) = self.server();
        !arguments.is_empty() || !matches!(room, Room::Plenty)
    }

    /// More arguments for the server, and what it has less of. The limits by sender are low enough to be reached.
    fn server(self) -> (Vec<String>, Room) {
        let arguments = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        match self {
            Self::Carry => (month_shifted_by(-1).into(), Room::Plenty),
            Self::Handles => (Vec::new(), Room::Files(FILES)),
            Self::Key => (arguments(&["--vapid-key-pushes-per-minute-max=600"]), Room::Plenty),
            Self::Address => {
                let limits = [
                    "--trusted-proxies=127.0.0.1",
                    "--address-pushes-per-minute-max=600",
                    "--address-connects-per-minute-max=600",
                    "--address-new-agents-per-minute-max=60",
                    "--address-registers-per-minute-max=600",
                ];
                (arguments(&limits), Room::Plenty)
            }
            Self::Disk => (arguments(&["--disk-free-min=16777216"]), Room::Disk(DISK_MIB)),
            Self::None
            | Self::Fill
            | Self::Upgrades
            | Self::Records
            | Self::Backlogs
            | Self::Slow
            | Self::Subscription
            | Self::Idle
            | Self::Frames
            | Self::Pipelines => (Vec::new(), Room::Plenty),
        }
    }
}

impl fmt::Display for Attack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().expect("every attack has a name").get_name())
    }
}

impl Prepared {
    /// Starts the server, and stores what the attack needs.
    pub(crate) async fn make(plan: &Plan, attack: Attack) -> (Server, Self) {
        let (arguments, room) = attack.server();
        let (mut server, mut agents) = (Server::start(plan, &arguments, room).await, Vec::new());
        match attack {
            Attack::Fill | Attack::Subscription | Attack::Disk => {
                agents.push(Agent::offline(server.address).await);
            }
            Attack::Key | Attack::Address => {
                for _ in 0..CONNECTIONS {
                    agents.push(Agent::offline(server.address).await);
                }
            }
            Attack::Carry => {
                agents = with_messages(server.address, plan.messages, usize::MAX).await;
                server = server.restart(plan, &month_shifted_by(1)).await;
            }
            Attack::Backlogs => {
                agents = with_messages(server.address, plan.messages, BACKLOG).await;
            }
            Attack::None
            | Attack::Upgrades
            | Attack::Records
            | Attack::Handles
            | Attack::Slow
            | Attack::Idle
            | Attack::Frames
            | Attack::Pipelines => {}
        }
        if attack == Attack::Disk {
            server.fill_disk(FREE_BYTES);
            // The server notices at its next look at the disk.
            while Sender::new().push(&agents[0].1, 0).await != Some(503) {}
        }
        let (agents, done, refused) = (agents.into(), Arc::default(), Arc::default());
        let address = server.address;
        let authorization = authorization(&format!("http://{address}")).into();
        (server, Self { attack, address, agents, authorization, done, refused })
    }

    /// Attacks until the other end of `stopped` is dropped. Returns how much was done, and how much refused.
    pub(crate) async fn attack_until(self, stopped: oneshot::Receiver<()>) -> (u64, u64) {
        let mut running = JoinSet::new();
        for nth in 0..self.tasks() {
            running.spawn(self.clone().work(nth));
        }
        let _ = stopped.await;
        running.shutdown().await;
        (self.done.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }

    fn tasks(&self) -> usize {
        match self.attack {
            Attack::None => 0,
            Attack::Upgrades | Attack::Handles => 1,
            Attack::Carry => self.agents.len(),
            Attack::Fill
            | Attack::Records
            | Attack::Backlogs
            | Attack::Subscription
            | Attack::Key
            | Attack::Address
            | Attack::Disk
            | Attack::Pipelines => CONNECTIONS,
            Attack::Frames => 2,
            Attack::Idle => IDLE_AGENTS,
            Attack::Slow => SILENT_AGENTS + 1,
        }
    }

    async fn work(self, nth: usize) {
        match self.attack {
            Attack::None => {}
            Attack::Fill | Attack::Disk => {
                let body = "x".repeat(PAYLOAD_BYTES);
                self.push_to(&self.agents[0].1, body, &[("ttl", "10800")]).await;
            }
            Attack::Upgrades => self.send_bad_handshakes().await,
            Attack::Carry | Attack::Idle => self.connect(nth).await,
            Attack::Records => self.make_records(None).await,
            Attack::Backlogs => self.reconnect(nth).await,
            Attack::Handles => self.open_connections().await,
            Attack::Slow if nth == SILENT_AGENTS => self.break_off_handshakes().await,
            Attack::Slow => self.be_silent().await,
            Attack::Subscription => self.push_as(0, ("urgency", "normal")).await,
            Attack::Key => {
                let authorization = Arc::clone(&self.authorization);
                self.push_as(nth, ("authorization", &authorization)).await;
            }
            Attack::Address if nth.is_multiple_of(2) => {
                self.push_as(nth, ("x-forwarded-for", FORWARDED)).await;
            }
            Attack::Address => self.make_records(Some(HeaderValue::from_static(FORWARDED))).await,
            Attack::Frames => self.send_frames().await,
            Attack::Pipelines => self.send_unread_requests().await,
        }
    }

    fn count(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    async fn push_to(&self, endpoint: &str, body: String, headers: &[(&str, &str)]) {
        let sender = Sender::new();
        loop {
            match sender.send_with(endpoint, body.clone(), headers).await {
                Some(201) => self.count(),
                Some(_) => self.count_refused(),
                None => sleep(PAUSE).await,
            }
        }
    }

    /// Pushes what is not stored to one agent, and names itself with the header.
    async fn push_as(self, nth: usize, name: (&str, &str)) {
        self.push_to(&self.agents[nth].1, "x".to_owned(), &[("ttl", "0"), name]).await;
    }

    /// Each wants another protocol than a WebSocket, so that the HTTP server keeps the connection for more.
    async fn send_bad_handshakes(self) {
        let batch = "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\n\r\n".repeat(64);
        loop {
            let Ok(stream) = TcpStream::connect(self.address).await else { continue };
            self.flood(stream, batch.as_bytes(), b"HTTP/1.1 ").await;
        }
    }

    /// Each frame is a ping of the push protocol. The masks are zeros.
    async fn send_frames(self) {
        const HANDSHAKE: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
            Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        const HELLO: &str = r#"{"messageType": "hello", "use_webpush": true}"#;
        let frame =
            |text: &str| [&[0x81, 0x80 | text.len() as u8, 0, 0, 0, 0], text.as_bytes()].concat();
        let (enter, batch) =
            ([HANDSHAKE.as_bytes(), &frame(HELLO)].concat(), frame("{}").repeat(512));
        loop {
            let Ok(mut stream) = TcpStream::connect(self.address).await else { continue };
            if stream.write_all(&enter).await.is_ok() {
                self.flood(stream, &batch, b"\x81\x02{}").await;
            }
        }
    }

    /// Sends the batch again and again, and counts the answers.
    async fn flood(&self, mut stream: TcpStream, batch: &[u8], answer: &[u8]) {
        let (mut answers, mut requests) = stream.split();
        let send = async { while requests.write_all(batch).await.is_ok() {} };
        let receive = async {
            let mut chunk = vec![0; 65_536];
            while let Ok(length @ 1..) = answers.read(&mut chunk).await {
                let found = chunk[..length].windows(answer.len()).filter(|part| *part == answer);
                self.done.fetch_add(found.count() as u64, Ordering::Relaxed);
            }
        };
        tokio::select! {
            () = send => {}
            () = receive => {}
        }
    }

    async fn send_unread_requests(self) {
        let batch = "GET /__version__ HTTP/1.1\r\nHost: a\r\n\r\n".repeat(64);
        loop {
            let Ok(mut stream) = TcpStream::connect(self.address).await else { continue };
            while stream.write_all(batch.as_bytes()).await.is_ok() {
                self.count();
            }
        }
    }

    /// Makes new agents with channels, which a proxy may forward from an address.
    async fn make_records(self, forwarded: Option<HeaderValue>) {
        loop {
            let agent = Agent::try_enter_through(self.address, None, forwarded.clone()).await;
            let Some(mut agent) = agent else {
                self.count_refused();
                continue;
            };
            for _ in 0..CHANNELS {
                match agent.try_register().await {
                    Some(_) => self.count(),
                    None => self.count_refused(),
                }
            }
        }
    }

    /// Connects one of its agents, or a new one, and acks nothing.
    async fn connect(self, nth: usize) {
        let uaid = self.agents.get(nth).map(|(uaid, _)| &**uaid);
        loop {
            let (mut agent, refused) = Agent::enter(self.address, uaid).await;
            self.refused.fetch_add(refused as u64, Ordering::Relaxed);
            self.count();
            while agent.receive().await.is_ok() {}
        }
    }

    /// Reconnects one agent after the other, and breaks the connection after the answer to its hello.
    async fn reconnect(self, first: usize) {
        for (uaid, _) in self.agents.iter().cycle().skip(first) {
            match Agent::try_enter(self.address, Some(uaid)).await {
                Some(_) => self.count(),
                None => {
                    self.count_refused();
                    sleep(Duration::from_millis(1)).await;
                }
            }
        }
    }

    async fn open_connections(self) {
        let mut open = Vec::new();
        loop {
            match TcpStream::connect(self.address).await {
                Ok(stream) if open.len() < FILES as usize => {
                    open.push(stream);
                    self.count();
                }
                Ok(_) | Err(_) => sleep(PAUSE).await,
            }
        }
    }

    /// Connects an agent that reads nothing more, and pushes to it.
    async fn be_silent(self) {
        let (mut agent, _) = Agent::enter(self.address, None).await;
        let Some(endpoint) = agent.try_register().await else { return };
        let sender = Sender::new();
        loop {
            match sender.send(&endpoint, "x".repeat(PAYLOAD_BYTES)).await {
                Some(_) => self.count(),
                None => sleep(PAUSE).await,
            }
        }
    }

    async fn break_off_handshakes(self) {
        loop {
            let Ok(mut stream) = TcpStream::connect(self.address).await else { continue };
            let _ = stream.write_all(b"GET / HTTP/1.1\r\nUpgrade: webso").await;
            self.count();
            sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Agents for which as many messages wait, at most `each_max` for one and as many as the server takes.
async fn with_messages(
    address: SocketAddr,
    count: usize,
    each_max: usize,
) -> Vec<(String, String)> {
    let (mut agents, mut stored) = (Vec::new(), 0);
    while stored < count {
        let (uaid, endpoint) = Agent::offline(address).await;
        let share = each_max.min(count - stored);
        let mut senders = JoinSet::new();
        for first in 0..CONNECTIONS {
            let (sender, endpoint) = (Sender::new(), endpoint.clone());
            senders.spawn(async move {
                let mut taken = 0;
                for number in (first..share).step_by(CONNECTIONS) {
                    match sender.push(&endpoint, number).await {
                        Some(201) => taken += 1,
                        _ => break,
                    }
                }
                taken
            });
        }
        let taken: usize = senders.join_all().await.into_iter().sum();
        assert!(taken > 0, "the server takes no message for a new agent");
        stored += taken;
        agents.push((uaid, endpoint));
    }
    agents
}

/// Arguments for a clock that is some half hours after the beginning of the next month, or before it.
fn month_shifted_by(half_hours: i64) -> [String; 3] {
    let now =
        SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970").as_secs();
    let month = |at_s: u64| Month::of(Time(at_s * 1000));
    let begins = (now / HOUR_S..).find(|hour| month(hour * HOUR_S) == month(now).next());
    let begins = begins.expect("a month ends") * HOUR_S;
    let offset = begins as i64 + half_hours * HOUR_S as i64 / 2 - now as i64;
    ["--dev".to_owned(), format!("--clock-offset-s={offset}"), DRAIN_WAIT.to_owned()]
}
