//! The store that a job works on, and what the job must know of the servers that use it.

use std::sync::Arc;

use actors::{Access, BoundedAddr, Clock, Directory, Feeds, RegistryActor};
use state_machine::{Month, Time};
use storage::StoreAdmin;

use crate::cluster::outbound::NodeAccess;
use crate::limits::Limits;
use crate::push::push_history::PushHistory;

#[derive(Clone)]
pub struct JobContext {
    pub store: Arc<dyn StoreAdmin>,
    /// The store that `store copy` reads. None of every other command.
    pub copy_source: Option<Arc<dyn StoreAdmin>>,
    /// Decides which month is the present one.
    pub clock: Clock,
    /// Whether a new table is used each month.
    pub rotation: bool,
    /// The month in use of the server that this job runs in, if rotation is off. None in the process of a command.
    pub frozen_month: Option<Month>,
    /// The connections of the server that this job runs in. None in the process of a command.
    pub registry: Option<BoundedAddr<RegistryActor>>,
    /// Whether a server creates missing tables.
    pub makes_tables: bool,
    pub servers: Servers,
    /// Writes and follows feeds through the publisher of this process. None in the process of a command, which
    /// publishes what it writes.
    pub feeds: Option<Feeds>,
    /// The access tokens of the server that this job runs in, with their use. None in the process of a command.
    pub access: Option<Access>,
    /// Maximum number of keys of a feed, including deleted ones.
    pub feed_keys_max: u64,
    /// Maximum size of a value of a feed, in bytes.
    pub feed_value_bytes_max: usize,
    pub process: Arc<ProcessView>,
}

/// What a process knows besides its store.
#[derive(Clone, Default)]
pub struct ProcessView {
    /// The origin of endpoints, if it is known.
    pub origin: Option<String>,
    /// Requests to other nodes. None if there can be none.
    pub peers: Option<NodeAccess>,
    /// The nodes that the server of this job has called, and its own name.
    pub nodes: Option<Directory>,
    /// The limits of the server that this job runs in.
    pub limits: Option<Arc<Limits>>,
    pub unacked_max: usize,
    /// The last pushes that this process took. None if it takes none.
    pub pushes: Option<Arc<PushHistory>>,
}

/// The servers that use the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Servers {
    /// The server that this job runs in.
    ThisOne,
    /// None: a lock keeps them out.
    Stopped,
    /// Unknown: DynamoDB does not show who uses a table.
    Unknown,
}

impl JobContext {
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    pub fn this_month(&self) -> Month {
        Month::of(self.now())
    }
}

/// The month `count` months before another.
pub fn months_before(month: Month, count: u32) -> Month {
    (0..count).fold(month, |month, _| month.previous())
}
