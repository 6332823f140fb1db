//! A user agent on a WebSocket, for loads with nodes that reject and disconnect it.

#[path = "../shared/agent.rs"]
mod base;

use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
use tokio::time::sleep;

pub(crate) use base::{Agent, Closed};

/// Maximum pause in ms before an agent that was rejected tries again. It is short: all agents
/// reconnect at once, which is more than a node will see in production.
const RETURN_MS_MAX: u64 = 1000;

impl Agent {
    /// Connects as a new user agent.
    pub(crate) async fn new(node: SocketAddr) -> Self {
        Self::enter(node, None).await.0
    }

    /// Connects until it succeeds, and returns the number of rejections.
    pub(crate) async fn enter(node: SocketAddr, uaid: Option<&str>) -> (Self, usize) {
        let mut refused = 0;
        loop {
            if let Some(agent) = Self::try_enter(node, uaid).await {
                return (agent, refused);
            }
            refused += 1;
            wait_a_little().await;
        }
    }

    /// Like [`try_register`](Self::try_register), and it must not be refused.
    pub(crate) async fn register(&mut self) -> String {
        self.try_register().await.expect("the node is there")
    }
}

/// The number in the payload of a notification.
pub(crate) fn number_of(message: &Value) -> Option<usize> {
    let data = URL_SAFE_NO_PAD.decode(message["data"].as_str()?).expect("data is base64url");
    let body = String::from_utf8(data).expect("bodies are text");
    Some(body.trim().parse().expect("bodies are numbers"))
}

/// Waits for a random time, so that agents that were closed together do not reconnect together.
pub(crate) async fn wait_a_little() {
    sleep(Duration::from_millis(fastrand::u64(0..RETURN_MS_MAX))).await;
}
