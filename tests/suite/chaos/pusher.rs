//! An application server that sends to all agents through all endpoint nodes.

use std::time::{Duration, Instant};

use futures_util::future::join_all;

use super::client::Client;
use super::ledger::Slot;
use super::plan::{Push, Pushes};
use super::state::{RunState, Stage};
use crate::harness::{Answer, Sender};

/// An application server with its own connections.
pub(super) struct Pusher(Sender);

/// The TTL of the last message, in seconds.
const TTL_LAST_S: u32 = 3600;

impl Pusher {
    pub(super) fn new() -> Self {
        Self(Sender::new())
    }

    /// Sends the planned pushes of all lanes until the end of the storm. Each lane waits for an
    /// answer before its next push.
    pub(super) async fn push_all(self, state: &RunState, lanes: Vec<Pushes>) {
        join_all(lanes.into_iter().map(|lane| self.push_lane(state, lane))).await;
    }

    async fn push_lane(&self, state: &RunState, mut pushes: Pushes) {
        loop {
            let push = pushes.next();
            state.pause(push.pause).await;
            if state.stage() > Stage::Storm {
                return;
            }
            self.push(state, push).await;
        }
    }

    /// Sends the last message and returns its number if it was accepted.
    pub(super) async fn push_last(&self, state: &RunState, client: &Client) -> Option<usize> {
        let push = Push {
            pause: Duration::ZERO,
            endpoint: client.number % state.endpoint_nodes.len(),
            client: client.number,
            channel: 0,
            topic: None,
            ttl_s: TTL_LAST_S,
            size: 0,
        };
        self.push(state, push).await
    }

    /// Sends a push and returns its number if it was accepted.
    async fn push(&self, state: &RunState, push: Push) -> Option<usize> {
        let Push { client, topic, ttl_s, .. } = push;
        let channels = state.clients[client].channels.borrow().clone();
        let channel = push.channel % channels.len();
        let ttl = Duration::from_secs(ttl_s.into());
        let lives = state.lives(ttl, push.endpoint);
        let slot = Slot { client, channel, topic };
        let number = state.ledger().post(slot, ttl, lives, Instant::now());
        let body = format!("{number} {}", "x".repeat(push.size));
        let endpoint = state.endpoint(push.endpoint, &channels[channel]);
        let mut post = self.0.post(&endpoint).ttl(ttl_s).body(body);
        if let Some(topic) = topic {
            post = post.header("topic", topic);
        }
        match post.try_send().await {
            Ok(answer) => is_accepted(state, number, &answer).then_some(number),
            Err(_) => {
                state.ledger().unanswered();
                None
            }
        }
    }
}

/// An endpoint node may answer 503 if it is overloaded or its store is down, but never that a
/// subscription is gone.
fn is_accepted(state: &RunState, number: usize, answer: &Answer) -> bool {
    let (mut ledger, now) = (state.ledger(), Instant::now());
    match (answer.status, answer.header("retry-after")) {
        (201, _) => ledger.accepted(number, now),
        (503, Some(_)) => ledger.refused(number, now),
        _ => ledger.report(format!("{number} was answered {answer}")),
    }
    answer.status == 201
}
