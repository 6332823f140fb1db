//! Broadcasts, from the feed that they are in to the user agents of a node.

mod spreading;
mod store_trouble;

use actors::Feeds;
use actors::broadcasts::{self, BroadcastLimits, BroadcastView};
use futures_util::future::join_all;
use serde_json::{Value, json};
use state_machine::feed::FeedName;
use state_machine::{Span, Uaid};
use storage::StoreError;
use tokio::sync::mpsc::error::TryRecvError;

use crate::clockwork::settle;
use crate::feeds::{FeedStore, node as feeds_on, put};
use crate::node::{Bounds, Node, UserAgent, log};
use crate::wire::Sent;

/// The time over which a change wakes all agents.
const SPREAD: Span = Span::from_secs(60);

/// The broadcast that agents follow.
const ID: &str = "monitor";

/// A node that sends broadcasts to its user agents.
pub(crate) struct Town {
    pub(crate) node: Node,
    feeds: Feeds,
}

impl Town {
    pub(crate) async fn on(store: &FeedStore) -> Self {
        Self::within(store, SPREAD).await
    }

    async fn within(store: &FeedStore, spread: Span) -> Self {
        let feeds = feeds_on(store);
        let broadcasts = Some(view(&feeds, spread).await.unwrap());
        let bounds = Bounds { registry_mailbox_max: 2000, broadcasts, ..Bounds::default() };
        Self { node: Node::within(bounds).await, feeds }
    }

    /// One in which the first version is known.
    pub(crate) async fn informed() -> Self {
        let town = Self::on(&FeedStore::new()).await;
        town.puts("1").await;
        town
    }

    /// Makes a new version of the broadcast known.
    pub(crate) async fn puts(&self, version: &str) {
        put(&self.feeds, &FeedName::broadcasts(), ID, version).await;
        settle().await;
    }

    /// An agent that connects with this version. Returns the broadcasts of its hello.
    ///
    /// Its place on the wheel is so many thousandths of the way round.
    pub(crate) async fn agent(&self, thousandths: u32, version: &str) -> (UserAgent, Value) {
        let mut uaid = [0; 16];
        uaid[12..].copy_from_slice(&(u32::MAX / 1000 * thousandths).to_be_bytes());
        let mut agent = UserAgent::connect(&self.node, Uaid(uaid));
        agent.says(&json!({"messageType": "hello", "broadcasts": {ID: version}}));
        let hello = agent.hears().await;
        settle().await;
        (agent, hello["broadcasts"].clone())
    }

    /// So many agents, all the way round the wheel, that know of this version.
    async fn agents(&self, count: u32, version: &str) -> Vec<UserAgent> {
        let agents = (0..count).map(|number| self.agent(number * 1000 / count, version));
        let agents = join_all(agents).await;
        assert!(agents.iter().all(|(_, told)| *told == json!({})), "they know already");
        agents.into_iter().map(|(agent, _)| agent).collect()
    }
}

async fn view(feeds: &Feeds, spread: Span) -> Result<BroadcastView, StoreError> {
    let clock = actors::Clock::starting_at(crate::feeds::NOW);
    let limits = BroadcastLimits { spread, mailbox_max: 2000 };
    broadcasts::start(feeds, limits, clock, log()).await
}

/// The versions that agents got since the last call; none got two at once.
fn told(agents: &mut [UserAgent]) -> Vec<Option<String>> {
    agents.iter_mut().map(told_one).collect()
}

fn told_one(agent: &mut UserAgent) -> Option<String> {
    let json = match agent.sent.try_recv() {
        Ok(Sent::Text(json)) => json,
        Err(TryRecvError::Empty) => return None,
        other => panic!("expected a message, got {other:?}"),
    };
    let message: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(message["messageType"], "broadcast");
    agent.heard_nothing_more();
    Some(message["broadcasts"][ID].as_str().unwrap().to_owned())
}
