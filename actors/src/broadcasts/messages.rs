//! What connections say to the actor that follows the broadcasts.

use std::sync::Arc;

use actix::Recipient;
use state_machine::ConnectionId;
use state_machine::broadcast::Broadcasts;
use state_machine::feed::FeedSyncId;
use tokio::sync::watch;

use crate::handle::ClientHandle;

/// A connection wants to be woken when broadcasts change.
#[derive(Debug, actix::Message)]
#[rtype(result = "()")]
pub struct Subscribe {
    /// Which connection.
    pub connection: ConnectionId,
    /// Where on the wheel it sits: its own random number, so that connections are woken one after the other.
    pub point: u32,
    /// It knows of all changes up to here.
    pub told: FeedSyncId,
    /// How it is woken.
    pub handle: ClientHandle,
}

/// A connection is not to be woken any more.
#[derive(Debug, Clone, Copy, actix::Message)]
#[rtype(result = "()")]
pub struct Unsubscribe {
    /// Which connection.
    pub connection: ConnectionId,
    /// The `point` it followed with.
    pub point: u32,
}

/// What connections see of a node's broadcasts.
#[derive(Debug, Clone)]
pub struct BroadcastView {
    /// All broadcasts, as far as the node followed them.
    pub now: watch::Receiver<Arc<Broadcasts>>,
    /// Takes a connection in that is to be woken when they change.
    pub subscribe: Recipient<Subscribe>,
    /// Lets it go.
    pub unsubscribe: Recipient<Unsubscribe>,
}

impl BroadcastView {
    /// Whether somebody is there to wake connections.
    pub fn is_running(&self) -> bool {
        self.subscribe.connected()
    }
}
