//! The connections of the public port and of the router port. Above its limit the public port refuses all but a few of an
//! operator on this machine. When each worker of the router port has its share of the limit, the server accepts no further
//! connection until one is closed, and reports that nowhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use actors::SharedLogLimiter;
use slog::{Logger, warn};
use state_machine::{Span, Time};

/// Minimum time between two log lines.
const LOG_EVERY: Span = Span::from_secs(60);

/// Connections of operators to a full public port.
pub const OPERATOR_CONNECTIONS_MAX: usize = 8;

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
    /// How often a connection took the last place, or found none, since the start.
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

    /// Like [`open`](Self::open); none if the port is full, for an operator if it has as many above that as it may.
    pub(super) fn try_open(
        self: &Arc<Self>,
        is_operator: bool,
        now: Time,
        log: &Logger,
    ) -> Option<OpenConnection> {
        let max = self.connections_max + if is_operator { OPERATOR_CONNECTIONS_MAX } else { 0 };
        let opened = self.open(now, log);
        // The one that was opened is among them.
        (self.connections.load(Ordering::Relaxed) <= max).then_some(opened)
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
                warn!(log, "the public port is full, further connections are refused until one is closed";
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
