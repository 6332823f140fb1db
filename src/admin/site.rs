//! What a job works on.

use std::sync::Arc;

use actors::Clock;
use state_machine::{Month, Time};
use storage::Upkeep;

/// A store, and what is to be known of the servers that use it.
#[derive(Clone)]
pub struct Site {
    /// The store.
    pub store: Arc<dyn Upkeep>,
    /// Says which month it is.
    pub clock: Clock,
    /// Whether tables move with the month.
    pub rotation: bool,
    /// Whether a server makes the tables that are missing.
    pub makes_tables: bool,
    /// The servers.
    pub servers: Servers,
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

impl Site {
    /// What time it is.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// What month it is.
    pub fn this_month(&self) -> Month {
        Month::of(self.now())
    }
}

/// The month so many months before.
pub fn months_before(month: Month, count: u32) -> Month {
    (0..count).fold(month, |month, _| month.previous())
}
