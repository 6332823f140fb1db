//! A user agent that behaves, beside peers that do not.

use std::time::{Duration, Instant};

use super::agent::{Agent, Channel};
use super::sender::Sender;
use super::{AT_ONCE, Server};

/// A user agent, connected for as long as the test.
pub(crate) struct Neighbour {
    agent: Agent,
    channel: Channel,
    sender: Sender,
    pushes: usize,
}

impl Neighbour {
    /// Moves in.
    pub(crate) async fn beside(server: &Server) -> Self {
        let mut agent = Agent::new(server).await;
        let channel = agent.register().await;
        Self { agent, channel, sender: Sender::new(), pushes: 0 }
    }

    /// Gets a push on the connection that it had from the start.
    pub(crate) async fn notices_nothing(&mut self) {
        let took = self.gets_a_push().await;
        assert!(took < AT_ONCE, "a push took {took:?}");
    }

    /// How long a push takes, from its request to the answer that comes after the ack.
    pub(crate) async fn gets_a_push(&mut self) -> Duration {
        self.pushes += 1;
        let (body, began) = (self.pushes.to_string(), Instant::now());
        self.sender.push_to(&mut self.agent, &self.channel, &body).await;
        began.elapsed()
    }
}
