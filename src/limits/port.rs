//! The connections of the public port and of the router port. When each worker has its share of the limit, the server
//! accepts no further one until one is closed, and reports that nowhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use actors::SharedLogLimiter;
use slog::{Logger, warn};
use state_machine::{Span, Time};

/// Minimum time between two log lines.
const LOG_EVERY: Span = Span::from_secs(10);

/// The ports whose connections are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortName {
    Public,
    Router,
}

pub(super) struct Port {
    name: PortName,
    connections_max: usize,
    connections: AtomicUsize,
    times_full: SharedLogLimiter,
}

/// How full a port is.
#[derive(Debug, PartialEq, Eq, serde::Serialize)]
pub struct PortState {
    pub connections: usize,
    /// At this number no further connection is accepted.
    pub connections_max: usize,
    /// How often a connection took the last place, since the start.
    pub times_full: u64,
}

/// Counts a connection of the port until it is dropped.
pub struct OpenConnection(Arc<Port>);

impl Port {
    pub(super) fn new(name: PortName, connections_max: usize) -> Arc<Self> {
        Arc::new(Self {
            name,
            connections_max,
            connections: AtomicUsize::new(0),
            times_full: SharedLogLimiter::new(LOG_EVERY),
        })
    }

    /// Counts a connection that was accepted. The last one that has a place is logged.
    pub(super) fn open(self: &Arc<Self>, now: Time, log: &Logger) -> OpenConnection {
        let connections = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        if connections >= self.connections_max {
            self.times_full.count(now).inspect(|times| self.write(*times, log));
        }
        OpenConnection(Arc::clone(self))
    }

    /// Logs that the port was full since the last line, if a line is due.
    pub(super) fn report(&self, now: Time, log: &Logger) {
        self.times_full.rest(now).inspect(|times| self.write(*times, log));
    }

    pub(super) fn state(&self) -> PortState {
        PortState {
            connections: self.connections.load(Ordering::Relaxed),
            connections_max: self.connections_max,
            times_full: self.times_full.total(),
        }
    }

    fn write(&self, times: u64, log: &Logger) {
        match self.name {
            PortName::Public => {
                warn!(log, "the public port is full, further connections wait until one is closed";
                    "connections_max" => self.connections_max, "times" => times);
            }
            PortName::Router => {
                warn!(log, "the router port is full, further connections of nodes wait until one is closed";
                    "router_connections_max" => self.connections_max, "times" => times);
            }
        }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
