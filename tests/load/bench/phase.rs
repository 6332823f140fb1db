//! The phases of a round. Each has a server of its own.

use std::fmt;
use std::io;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::load::{Audience, Senders, Sizes, User, at_once, connect, receive};
use super::server::{Program, Server};
use super::shared::feed::{Feed, Follower};
use super::shared::http::Connection;
use super::shared::percentile::percentile;
use super::shared::vapid::authorization;

/// What is measured, in the order of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(crate) enum Operation {
    DirectVapid,
    Direct,
    Stored,
    StoredP99,
    Drain,
    Connect,
    ConnectRegister,
    Idle,
    FeedUpdate,
    IdleFollower,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Phase {
    Connects,
    Registers,
    Direct,
    Stored,
    Feed,
    Followers,
}

impl Operation {
    /// What it is, with its unit.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::DirectVapid => "direct push with VAPID, µs",
            Self::Direct => "direct push without VAPID, µs",
            Self::Stored => "stored push, µs",
            Self::StoredP99 => "stored push, p99 of the time to 201, ms",
            Self::Drain => "drain of a stored message, acked and deleted, µs",
            Self::Connect => "connect and hello, µs",
            Self::ConnectRegister => "connect, hello and register, µs",
            Self::Idle => "idle connection, KiB resident",
            Self::FeedUpdate => "update of a feed, for each follower, µs",
            Self::IdleFollower => "idle follower of a feed, KiB resident",
        }
    }

    /// The operations that have a ratio.
    pub(crate) fn compared() -> impl Iterator<Item = Self> {
        Self::value_variants().iter().copied().filter(|operation| operation.yardstick().is_some())
    }

    /// The operation of the floor that this is compared with. None: it is only shown.
    pub(crate) fn yardstick(self) -> Option<Self> {
        match self {
            Self::DirectVapid | Self::Direct | Self::Stored | Self::Drain | Self::FeedUpdate => {
                Some(Self::Direct)
            }
            Self::Connect | Self::ConnectRegister => Some(Self::Connect),
            Self::Idle | Self::IdleFollower => Some(Self::Idle),
            Self::StoredP99 => None,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().expect("every operation has a name").get_name())
    }
}

impl Phase {
    /// Whether the program has what the phase measures.
    pub(crate) fn is_for(self, program: &Program) -> bool {
        *program != Program::Floor || matches!(self, Self::Connects | Self::Direct)
    }

    pub(crate) async fn measure(
        self,
        program: &Program,
        server: &Server,
        sizes: &Sizes,
    ) -> io::Result<Vec<(Operation, f64)>> {
        match self {
            Self::Connects => connects(server, sizes).await,
            Self::Registers => registers(server, sizes).await,
            Self::Direct => direct(server, sizes, *program != Program::Floor).await,
            Self::Stored => stored(server, sizes).await,
            Self::Feed => feed(server, sizes).await,
            Self::Followers => followers(server, sizes).await,
        }
    }
}

async fn connects(server: &Server, sizes: &Sizes) -> io::Result<Vec<(Operation, f64)>> {
    let (address, count) = (server.process.address, sizes.connections);
    let agents = |count| at_once((0..count).map(move |_| connect(address, None)));
    let idle = Duration::from_secs(sizes.idle_s);
    let _first = agents(sizes.idle_first).await?;
    let (kib, (us, _agents)) = server.memory_kib(idle, server.cpu_us(agents(count))).await?;
    Ok(vec![(Operation::Connect, us / count as f64), (Operation::Idle, kib / count as f64)])
}

async fn registers(server: &Server, sizes: &Sizes) -> io::Result<Vec<(Operation, f64)>> {
    let users = User::some(server.process.address, sizes.connections);
    let (us, users) = server.cpu_us(users).await?;
    Ok(vec![(Operation::ConnectRegister, us / users.len() as f64)])
}

async fn direct(
    server: &Server,
    sizes: &Sizes,
    has_vapid: bool,
) -> io::Result<Vec<(Operation, f64)>> {
    let address = server.process.address;
    let users = User::some(address, sizes.clients).await?;
    let endpoints: Vec<_> = users.iter().map(|user| user.endpoint.clone()).collect();
    let mut audience = Audience::of(users);
    let authorization = authorization(&format!("http://{address}"));
    let with = [(Operation::DirectVapid, Some(&*authorization)), (Operation::Direct, None)];
    let (mut figures, mut sent) = (Vec::new(), 0);
    for (operation, authorization) in with.into_iter().skip(usize::from(!has_vapid)) {
        let endpoints = endpoints.iter().map(String::as_str);
        let senders = Senders::new(address, endpoints, authorization);
        sent += senders.warm_up(sizes.messages).await?;
        let (us, took) = server.cpu_us(senders.push(sizes.messages)).await?;
        sent += took.len();
        audience.has_received(sent)?;
        figures.push((operation, us / took.len() as f64));
    }
    Ok(figures)
}

async fn stored(server: &Server, sizes: &Sizes) -> io::Result<Vec<(Operation, f64)>> {
    let address = server.process.address;
    let users = User::some(address, sizes.clients).await?;
    let absent: Vec<_> =
        users.iter().map(|user| (user.agent.uaid.clone(), user.endpoint.clone())).collect();
    at_once(users.into_iter().map(async |user| {
        user.agent.leave().await;
        Ok(())
    }))
    .await?;
    let endpoints = absent.iter().map(|(_, endpoint)| &**endpoint);
    let senders = Senders::new(address, endpoints, None);
    let messages = sizes.clients * sizes.stored_each;
    let (stored_us, took_ms) = server.cpu_us(senders.push(messages)).await?;
    let drain = at_once(absent.iter().map(async |(uaid, _)| {
        let mut agent = connect(address, Some(uaid)).await?;
        receive(&mut agent, sizes.stored_each).await?;
        Ok(agent)
    }));
    let (drain_us, _agents) = server.cpu_us(drain).await?;
    Ok(vec![
        (Operation::Stored, stored_us / messages as f64),
        (Operation::StoredP99, percentile(&took_ms, 99)),
        (Operation::Drain, drain_us / messages as f64),
    ])
}

async fn feed(server: &Server, sizes: &Sizes) -> io::Result<Vec<(Operation, f64)>> {
    let feed = server.feed().await?;
    let mut writer = Connection::open(server.process.address).await?;
    feed.put(&mut writer, "key", "first").await?;
    let followers = follow(&feed, sizes.followers).await?;
    let (seen, mut values) = mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    for mut follower in followers {
        let seen = seen.clone();
        tasks.spawn(async move { while seen.send(follower.value().await).is_ok() {} });
    }
    let updates = async {
        for update in 0..sizes.updates {
            let value = format!("value {update}");
            feed.put(&mut writer, "key", &value).await?;
            for _ in 0..sizes.followers {
                let seen = values.recv().await.expect("a sender is kept")?;
                if seen != value {
                    return Err(io::Error::other(format!("a follower got {seen:?} for {value:?}")));
                }
            }
        }
        Ok(())
    };
    let (us, ()) = server.cpu_us(updates).await?;
    Ok(vec![(Operation::FeedUpdate, us / (sizes.updates * sizes.followers) as f64)])
}

async fn followers(server: &Server, sizes: &Sizes) -> io::Result<Vec<(Operation, f64)>> {
    let feed = server.feed().await?;
    let mut writer = Connection::open(server.process.address).await?;
    let (idle, count) = (Duration::from_secs(sizes.idle_s), sizes.idle_followers);
    feed.put(&mut writer, "key", "first").await?;
    let _first = follow(&feed, sizes.idle_first).await?;
    let (kib, _followers) = server.memory_kib(idle, follow(&feed, count)).await?;
    Ok(vec![(Operation::IdleFollower, kib / count as f64)])
}

/// Followers that have read the update that the feed had before.
async fn follow(feed: &Feed, count: usize) -> io::Result<Vec<Follower>> {
    at_once((0..count).map(async |_| {
        let mut follower = feed.follow().await?;
        follower.value().await?;
        Ok(follower)
    }))
    .await
}
