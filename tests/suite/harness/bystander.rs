//! A well-behaved user agent, which misbehaving peers must not affect.

use super::Server;
use super::agent::{Agent, Channel};
use super::sender::Sender;

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

    /// Checks that a push arrives on the original connection and is answered.
    pub(crate) async fn is_unaffected(&mut self) {
        self.pushes += 1;
        let body = self.pushes.to_string();
        self.sender.push_to(&mut self.agent, &self.channel, &body).await;
    }
}
