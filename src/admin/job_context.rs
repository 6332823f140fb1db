//! What a job works on.

use std::sync::Arc;

use actors::{Clock, Feeds};
use state_machine::feed::FeedName;
use state_machine::{Month, Time};
use storage::StoreAdmin;

use crate::settings::Settings;

/// A store, and what is to be known of the servers that use it.
#[derive(Clone)]
pub struct JobContext {
    /// The store.
    pub store: Arc<dyn StoreAdmin>,
    /// Says which month it is.
    pub clock: Clock,
    /// Whether tables move with the month.
    pub rotation: bool,
    /// Whether a server makes the tables that are missing.
    pub makes_tables: bool,
    /// The servers.
    pub servers: Servers,
    /// What writes and follows feeds here; none where no server runs here, which publishes what is written.
    pub feeds: Option<Feeds>,
    /// What a feed may hold.
    pub feed_bounds: FeedBounds,
}

/// What a feed may hold.
#[derive(Debug, Clone, Copy)]
pub struct FeedBounds {
    /// Keys, those that were deleted too.
    pub keys_max: u64,
    /// Bytes of a value.
    pub value_bytes_max: usize,
}

impl FeedBounds {
    /// What this feed may hold.
    pub fn of(self, feed: &FeedName) -> Self {
        let Self { keys_max, value_bytes_max } = self;
        let value_bytes_max = feed.value_bytes_max(value_bytes_max);
        Self { keys_max: feed.keys_max(keys_max), value_bytes_max }
    }
}

/// Whether servers use the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Servers {
    /// The one that this runs in.
    ThisOne,
    /// None: they are kept out by a lock.
    Stopped,
    /// There is no knowing.
    Unknown,
}

impl JobContext {
    /// What time it is.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// What month it is.
    pub fn this_month(&self) -> Month {
        Month::of(self.now())
    }
}

impl From<&Settings> for FeedBounds {
    fn from(settings: &Settings) -> Self {
        let Settings { feed_keys_max, feed_value_bytes_max, .. } = *settings;
        Self { keys_max: feed_keys_max, value_bytes_max: feed_value_bytes_max }
    }
}

/// The month so many months before.
pub fn months_before(month: Month, count: u32) -> Month {
    (0..count).fold(month, |month, _| month.previous())
}
