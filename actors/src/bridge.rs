//! The contract of a bridge, the push service of a platform.

use std::future::ready;

use futures_util::future::BoxFuture;
use state_machine::{BridgeOutcome, BridgeRecipient, Message};

/// Sends messages to the user agents of one bridge.
pub trait Bridge: Send + Sync {
    /// Sends one message. The outcome is known within the bridge's own time-out.
    fn send(
        &self,
        recipient: &BridgeRecipient,
        message: &Message,
    ) -> BoxFuture<'static, BridgeOutcome>;
}

/// A server without bridges.
pub struct NoBridges;

impl Bridge for NoBridges {
    fn send(&self, _: &BridgeRecipient, _: &Message) -> BoxFuture<'static, BridgeOutcome> {
        Box::pin(ready(BridgeOutcome::UnknownApp))
    }
}
