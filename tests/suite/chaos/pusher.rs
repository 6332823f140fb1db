//! An application server that sends to everybody, through all endpoint nodes.

use std::time::{Duration, Instant};

use futures_util::future::join_all;

use super::client::Client;
use super::ledger::Slot;
use super::plan::{Push, Pushes};
use super::scene::{Scene, Stage};
use crate::harness::{Answer, Sender};

/// An application server with connections of its own.
pub(super) struct Pusher(Sender);

/// How long the last message is kept.
const TTL_LAST_S: u32 = 3600;

impl Pusher {
    pub(super) fn new() -> Self {
        Self(Sender::new())
    }

    /// Sends what is planned in all its lanes, each of which waits for its answers, until the storm is over.
    pub(super) async fn push_all(self, scene: &Scene, lanes: Vec<Pushes>) {
        join_all(lanes.into_iter().map(|lane| self.push_lane(scene, lane))).await;
    }

    async fn push_lane(&self, scene: &Scene, mut pushes: Pushes) {
        loop {
            let push = pushes.next();
            scene.pause(push.pause).await;
            if scene.stage() > Stage::Storm {
                return;
            }
            self.push(scene, push).await;
        }
    }

    /// Sends a message that is the last of all; gives its number, if it was accepted.
    pub(super) async fn push_last(&self, scene: &Scene, client: &Client) -> Option<usize> {
        let push = Push {
            pause: Duration::ZERO,
            endpoint: client.number % scene.endpoints.len(),
            client: client.number,
            channel: 0,
            topic: None,
            ttl_s: TTL_LAST_S,
            size: 0,
        };
        self.push(scene, push).await
    }

    /// Gives its number, if it was accepted.
    async fn push(&self, scene: &Scene, push: Push) -> Option<usize> {
        let Push { client, topic, ttl_s, .. } = push;
        let channels = scene.clients[client].channels.borrow().clone();
        let channel = push.channel % channels.len();
        let ttl = Duration::from_secs(ttl_s.into());
        let number = scene.ledger().post(Slot { client, channel, topic }, ttl, Instant::now());
        let body = format!("{number} {}", "x".repeat(push.size));
        let endpoint = scene.endpoint(push.endpoint, &channels[channel]);
        let mut post = self.0.post(&endpoint).ttl(ttl_s).body(body);
        if let Some(topic) = topic {
            post = post.header("topic", topic);
        }
        match post.try_send().await {
            Ok(answer) => is_accepted(scene, number, &answer).then_some(number),
            Err(_) => {
                scene.ledger().unanswered();
                None
            }
        }
    }
}

/// An endpoint node may be overrun, or its store away; it may not say that a subscription is gone.
fn is_accepted(scene: &Scene, number: usize, answer: &Answer) -> bool {
    let (mut ledger, now) = (scene.ledger(), Instant::now());
    match (answer.status, answer.header("retry-after")) {
        (201, _) => ledger.accepted(number, now),
        (503, Some(_)) => ledger.refused(number, now),
        _ => ledger.found(format!("{number} was answered {answer}")),
    }
    answer.status == 201
}
