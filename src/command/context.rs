//! The store that a job works on, and what the job must know of the servers that use it.

use std::sync::Arc;

use actors::Clock;
use hyper::http::Extensions;
use state_machine::{Month, Time};
use storage::StoreAdmin;

use crate::settings::Settings;
use crate::system::clock::unix_now;

#[derive(Clone)]
pub struct Context {
    pub store: Arc<dyn StoreAdmin>,
    /// Those of the server that this job runs in, or of the command.
    pub settings: Arc<Settings>,
    /// Decides which month is the present one.
    pub clock: Clock,
    /// The month in use of the server that this job runs in, if rotation is off. None in the process of a command.
    pub frozen_month: Option<Month>,
    pub servers: Servers,
    /// The origin of endpoints, if it is known.
    pub origin: Option<String>,
    /// What the process offers besides its store, by type: the connections, feeds and limits of a server.
    pub parts: Arc<Extensions>,
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

impl Context {
    /// The context of a command in its own process.
    pub fn own(store: Arc<dyn StoreAdmin>, settings: &Settings, servers: Servers) -> Self {
        Self {
            store,
            settings: Arc::new(settings.clone()),
            clock: Clock::starting_at(unix_now()),
            frozen_month: None,
            servers,
            origin: settings.public_url.as_ref().map(|url| url.as_str().to_owned()),
            parts: Arc::default(),
        }
    }

    pub fn now(&self) -> Time {
        self.clock.now()
    }

    pub fn this_month(&self) -> Month {
        Month::of(self.now())
    }

    /// Whether this is the process of a server, which offers parts.
    pub fn is_in_server(&self) -> bool {
        !self.parts.is_empty()
    }

    /// What the process offers of this type, if it does.
    pub fn part<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.parts.get()
    }
}

/// The month `count` months before another.
pub fn months_before(month: Month, count: u32) -> Month {
    (0..count).fold(month, |month, _| month.previous())
}
