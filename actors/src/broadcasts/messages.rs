//! The messages of connections to the broadcast actor, and the view that they have of its
//! broadcasts.

use std::sync::Arc;

use state_machine::ConnectionId;
use state_machine::broadcast::Broadcasts;
use state_machine::feed::FeedSyncId;
use tokio::sync::watch;

use crate::handle::ClientHandle;
use crate::mailbox::BoundedRecipient;
use crate::observe::{BroadcastState, Observe};

/// A connection is to be woken when broadcasts change.
#[derive(Debug, actix::Message)]
#[rtype(result = "()")]
pub struct Subscribe {
    pub connection: ConnectionId,
    /// Its slot in the fan-out: its own random number, so that connections are woken one after the
    /// other.
    pub slot: u32,
    /// The last change that its agent knows.
    pub last_sent: FeedSyncId,
    /// The handle that wakes it.
    pub handle: ClientHandle,
}

/// A connection is no longer to be woken.
#[derive(Debug, Clone, Copy, actix::Message)]
#[rtype(result = "()")]
pub struct Unsubscribe {
    pub connection: ConnectionId,
    /// The slot that it subscribed with.
    pub slot: u32,
}

/// The broadcasts of a node, as connections see them.
#[derive(Debug, Clone)]
pub struct BroadcastView {
    /// All broadcasts, up to the last change that the node knows.
    pub now: watch::Receiver<Arc<Broadcasts>>,
    /// Subscribes a connection to changes.
    pub subscribe: BoundedRecipient<Subscribe>,
    pub unsubscribe: BoundedRecipient<Unsubscribe>,
    pub observe: BoundedRecipient<Observe<BroadcastState>>,
}

impl BroadcastView {
    /// Whether the broadcast actor is alive.
    pub fn is_running(&self) -> bool {
        self.subscribe.connected()
    }
}
