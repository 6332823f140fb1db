//! The store that a job works on, and what the job must know of the servers that use it.

use std::sync::Arc;

use actors::{Clock, Feeds};
use state_machine::feed::FeedName;
use state_machine::{Month, Time};
use storage::StoreAdmin;

use crate::settings::Settings;

#[derive(Clone)]
pub struct JobContext {
    pub store: Arc<dyn StoreAdmin>,
    /// Decides which month is the present one.
    pub clock: Clock,
    /// Whether a new table is used each month.
    pub rotation: bool,
    /// Whether a server creates missing tables.
    pub makes_tables: bool,
    pub servers: Servers,
    /// Writes and follows feeds through the publisher of this process. None in the process of a command, which
    /// publishes what it writes.
    pub feeds: Option<Feeds>,
    pub feed_bounds: FeedBounds,
}

/// The bounds of any feed, from the settings.
#[derive(Debug, Clone, Copy)]
pub struct FeedBounds {
    /// Maximum number of keys, including deleted ones.
    pub keys_max: u64,
    /// Maximum size of a value, in bytes.
    pub value_bytes_max: usize,
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

impl FeedBounds {
    /// The bounds of this feed, which its purpose may narrow.
    pub fn of(self, feed: &FeedName) -> Self {
        let Self { keys_max, value_bytes_max } = self;
        let value_bytes_max = feed.value_bytes_max(value_bytes_max);
        Self { keys_max: feed.keys_max(keys_max), value_bytes_max }
    }
}

impl From<&Settings> for FeedBounds {
    fn from(settings: &Settings) -> Self {
        let Settings { feed_keys_max, feed_value_bytes_max, .. } = *settings;
        Self { keys_max: feed_keys_max, value_bytes_max: feed_value_bytes_max }
    }
}

/// The month `count` months before another.
pub fn months_before(month: Month, count: u32) -> Month {
    (0..count).fold(month, |month, _| month.previous())
}
