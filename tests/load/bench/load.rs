//! The load: user agents and application servers, as many as [`Sizes`] says.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::shared::agent::{Agent, Closed};
use super::shared::http::Connection;

/// Connections that are opened at a time.
const OPENING: usize = 64;

/// Connections of application servers.
const SENDERS: usize = 16;

/// Bytes of the body of a push.
const BODY_BYTES: usize = 256;

/// The part of the pushes that are sent before those that are measured.
const WARM_UP_PART: usize = 20;

/// The counts of everything, and the duration of the wait.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Sizes {
    /// Agents that receive pushes
    #[arg(long, default_value_t = 500)]
    pub(crate) clients: usize,
    /// Direct pushes, with VAPID and as many without
    #[arg(long, default_value_t = 20_000)]
    pub(crate) messages: usize,
    /// Messages stored for each agent
    #[arg(long, default_value_t = 20)]
    pub(crate) stored_each: usize,
    /// Idle agents, and followers, before those whose memory is measured: they use what is free at the start
    #[arg(long, default_value_t = 5000)]
    pub(crate) idle_first: usize,
    /// Agents that connect and stay idle
    #[arg(long, default_value_t = 5000)]
    pub(crate) connections: usize,
    /// Followers of the feed that is updated
    #[arg(long, default_value_t = 100)]
    pub(crate) followers: usize,
    /// Updates of that feed
    #[arg(long, default_value_t = 100)]
    pub(crate) updates: usize,
    /// Followers of the feed that stays idle
    #[arg(long, default_value_t = 2000)]
    pub(crate) idle_followers: usize,
    /// Time before each of the two measurements of memory
    #[arg(long, default_value_t = 12)]
    pub(crate) idle_s: u64,
}

/// A connected agent with a channel.
pub(crate) struct User {
    pub(crate) agent: Agent,
    pub(crate) endpoint: String,
}

/// Connected agents that ack everything, until this is dropped.
pub(crate) struct Audience {
    agents: JoinSet<()>,
    received: Arc<AtomicUsize>,
}

/// Application servers, and their requests: one for each agent.
#[derive(Clone)]
pub(crate) struct Senders {
    server: SocketAddr,
    requests: Arc<[Vec<u8>]>,
}

/// Does so much at a time, and collects the results.
pub(crate) async fn at_once<T, F>(work: impl IntoIterator<Item = F>) -> io::Result<Vec<T>>
where
    F: Future<Output = io::Result<T>>,
{
    stream::iter(work).buffer_unordered(OPENING).try_collect().await
}

pub(crate) async fn connect(server: SocketAddr, uaid: Option<&str>) -> io::Result<Agent> {
    let agent = Agent::try_enter(server, uaid).await;
    let agent = agent.ok_or_else(|| io::Error::other("an agent was not let in"))?;
    match uaid.is_none_or(|uaid| uaid == agent.uaid) {
        true => Ok(agent),
        false => Err(io::Error::other("an agent got another uaid")),
    }
}

impl User {
    pub(crate) async fn new(server: SocketAddr) -> io::Result<Self> {
        let mut agent = connect(server, None).await?;
        let endpoint = agent.try_register().await;
        let endpoint = endpoint.ok_or_else(|| io::Error::other("a register was refused"))?;
        Ok(Self { agent, endpoint })
    }

    pub(crate) async fn some(server: SocketAddr, count: usize) -> io::Result<Vec<Self>> {
        at_once((0..count).map(|_| Self::new(server))).await
    }
}

/// Receives so many messages and acks them.
pub(crate) async fn receive(agent: &mut Agent, count: usize) -> io::Result<()> {
    for _ in 0..count {
        let message = agent.receive().await.map_err(|Closed(code)| {
            io::Error::other(format!("an agent was disconnected with code {code:?}"))
        })?;
        agent.ack(&message).await;
    }
    Ok(())
}

impl Audience {
    pub(crate) fn of(users: Vec<User>) -> Self {
        let (mut agents, received) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
        for mut user in users {
            let received = Arc::clone(&received);
            agents.spawn(async move {
                while receive(&mut user.agent, 1).await.is_ok() {
                    received.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        Self { agents, received }
    }

    /// Fails unless all agents are connected and have received so many messages together. One may arrive twice.
    pub(crate) fn has_received(&mut self, count: usize) -> io::Result<()> {
        let received = self.received.load(Ordering::Relaxed);
        match (self.agents.try_join_next(), received >= count) {
            (None, true) => Ok(()),
            (None, false) => Err(io::Error::other(format!("{received} of {count} pushes arrived"))),
            (Some(_), _) => Err(io::Error::other("an agent was disconnected")),
        }
    }
}

impl Senders {
    pub(crate) fn new<'a>(
        server: SocketAddr,
        endpoints: impl Iterator<Item = &'a str>,
        authorization: Option<&str>,
    ) -> Self {
        let authorization = authorization.map(|header| format!("Authorization: {header}\r\n"));
        let authorization = authorization.unwrap_or_default();
        let origin = format!("http://{server}");
        let request = |endpoint: &str| {
            let path = endpoint.strip_prefix(&origin).unwrap_or(endpoint);
            let body = "x".repeat(BODY_BYTES);
            let request = format!(
                "POST {path} HTTP/1.1\r\nHost: {server}\r\nTTL: 3600\r\nContent-Encoding: aes128gcm\r\n\
                 {authorization}Content-Length: {BODY_BYTES}\r\n\r\n{body}"
            );
            request.into_bytes()
        };
        Self { server, requests: endpoints.map(request).collect() }
    }

    /// Sends some pushes before those that are measured, and returns their number.
    pub(crate) async fn warm_up(&self, messages: usize) -> io::Result<usize> {
        Ok(self.push(messages.div_ceil(WARM_UP_PART)).await?.len())
    }

    /// Sends so many pushes to the agents in turn, and returns the time of each in ms, sorted.
    pub(crate) async fn push(&self, count: usize) -> io::Result<Vec<f64>> {
        let mut running = JoinSet::new();
        for first in 0..SENDERS {
            let own = (first..count).step_by(SENDERS);
            running.spawn(self.clone().push_these(own));
        }
        let mut took_ms = Vec::with_capacity(count);
        while let Some(sender) = running.join_next().await {
            took_ms.extend(sender.map_err(io::Error::other)??);
        }
        took_ms.sort_unstable_by(f64::total_cmp);
        Ok(took_ms)
    }

    async fn push_these(self, numbers: impl Iterator<Item = usize>) -> io::Result<Vec<f64>> {
        let mut connection = Connection::open(self.server).await?;
        let mut took_ms = Vec::new();
        for number in numbers {
            let begun = Instant::now();
            let status = connection.request(&self.requests[number % self.requests.len()]).await?;
            if status != 201 {
                return Err(io::Error::other(format!("a push was answered {status}")));
            }
            took_ms.push(begun.elapsed().as_secs_f64() * 1000.0);
        }
        Ok(took_ms)
    }
}
