//! A well-behaved user agent, which misbehaving peers must not affect.

use std::time::{Duration, Instant};

use super::agent::{Agent, Channel};
use super::sender::Sender;
use super::{AT_ONCE, Server};

/// A user agent that stays connected during the test.
pub(crate) struct Bystander {
    agent: Agent,
    channel: Channel,
    sender: Sender,
    pushes: usize,
}

impl Bystander {
    /// Connects and registers a channel.
    pub(crate) async fn connect(server: &Server) -> Self {
        let (agent, channel) = Agent::subscribed(server).await;
        Self { agent, channel, sender: Sender::new(), pushes: 0 }
    }

    /// Checks that a push arrives in time on the original connection.
    pub(crate) async fn is_unaffected(&mut self) {
        let took = self.push_latency().await;
        assert!(took < AT_ONCE, "a push took {took:?}");
    }

    /// The time from the request of a push to its answer, which follows the ack.
    pub(crate) async fn push_latency(&mut self) -> Duration {
        self.pushes += 1;
        let (body, began) = (self.pushes.to_string(), Instant::now());
        self.sender.push_to(&mut self.agent, &self.channel, &body).await;
        began.elapsed()
    }
}
