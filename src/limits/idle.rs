//! The HTTP connections of the public port, of which idle ones are closed when it is nearly full.

use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use actors::SharedLogLimiter;
use actors::socket::ConnectionUse;
use parking_lot::Mutex;
use slog::{Logger, warn};
use state_machine::{Span, Time};

/// Minimum time between two log lines.
const LOG_EVERY: Span = Span::from_secs(60);

/// Minimum time between two looks at all connections.
const LOOK_EVERY: Span = Span(100);

/// The connections that all threads share, by address. Those of addresses without a limit are not among them.
pub(super) struct IdleConnections {
    connections: Mutex<Connections>,
    closed: SharedLogLimiter,
}

#[derive(Default)]
struct Connections {
    /// The oldest comes first.
    of_addresses: HashMap<IpAddr, BTreeMap<u64, Arc<ConnectionUse>>>,
    next: u64,
    looked_at: Option<Time>,
}

/// A connection that may be closed while it is idle, until this is dropped.
pub(super) struct Closable {
    all: Arc<IdleConnections>,
    address: IpAddr,
    number: u64,
}

impl IdleConnections {
    pub(super) fn new() -> Arc<Self> {
        let closed = SharedLogLimiter::new(LOG_EVERY);
        Arc::new(Self { connections: Mutex::default(), closed })
    }

    pub(super) fn add(self: &Arc<Self>, address: IpAddr, usage: Arc<ConnectionUse>) -> Closable {
        let mut connections = self.connections.lock();
        let number = connections.next;
        connections.next += 1;
        connections.of_addresses.entry(address).or_default().insert(number, usage);
        Closable { all: Arc::clone(self), address, number }
    }

    /// Closes idle connections if a port with so many of `max` is nearly full: of the address that has the most of them
    /// the oldest first, and so on.
    pub(super) fn make_room(&self, open: usize, max: usize, now: Time, log: &Logger) {
        let near = max - max / 10;
        if open < near {
            return;
        }
        let mut connections = self.connections.lock();
        if connections.looked_at.is_some_and(|at| now >= at && now.since(at) < LOOK_EVERY) {
            return;
        }
        connections.looked_at = Some(now);
        // Half of the way below, so that not each further connection looks at all of them.
        let wanted = open - near + (max / 20).max(1);
        let closed = connections.close(wanted);
        drop(connections);
        for _ in 0..closed {
            self.closed.count(now).inspect(|times| write(*times, log));
        }
    }

    /// Logs what was closed since the last line, if a line is due.
    pub(super) fn report(&self, now: Time, log: &Logger) {
        self.closed.rest(now).inspect(|times| write(*times, log));
    }

    /// How many were closed, since the start.
    pub(super) fn closed(&self) -> u64 {
        self.closed.total()
    }
}

impl Connections {
    /// Closes so many, less those that are closing. Returns the number.
    fn close(&self, wanted: usize) -> usize {
        let all = || self.of_addresses.values().flat_map(BTreeMap::values);
        let mut left = wanted.saturating_sub(all().filter(|usage| usage.is_closing()).count());
        let mut idle: Vec<_> = self
            .of_addresses
            .values()
            .map(|of_address| of_address.values().filter(|usage| usage.is_idle()))
            .map(|idle| (idle.clone().count(), idle))
            .collect();
        let counts = idle.iter().map(|(count, _)| *count).zip(0..);
        let mut most: BinaryHeap<(usize, usize)> = counts.filter(|(count, _)| *count > 0).collect();
        let mut closed = 0;
        while left > 0
            && let Some((count, at)) = most.pop()
        {
            let Some(usage) = idle[at].1.next() else { continue };
            if usage.close_if_idle() {
                (left, closed) = (left - 1, closed + 1);
            }
            if count > 1 {
                most.push((count - 1, at));
            }
        }
        closed
    }
}

impl Drop for Closable {
    fn drop(&mut self) {
        let mut connections = self.all.connections.lock();
        let Some(of_address) = connections.of_addresses.get_mut(&self.address) else { return };
        of_address.remove(&self.number);
        if of_address.is_empty() {
            connections.of_addresses.remove(&self.address);
        }
    }
}

fn write(times: u64, log: &Logger) {
    warn!(log, "idle HTTP connections are closed, the public port is nearly full"; "connections" => times);
}

#[cfg(test)]
mod tests {
    use slog::{Discard, o};

    use super::*;

    const NOW: Time = Time(1_000_000);

    /// The connections of addresses, so many of each.
    fn opened(
        all: &Arc<IdleConnections>,
        counts: &[usize],
    ) -> Vec<Vec<(Closable, Arc<ConnectionUse>)>> {
        let of = |number: usize, count: usize| {
            let address = IpAddr::from((number as u32).to_be_bytes());
            (0..count).map(move |_| {
                let usage = Arc::<ConnectionUse>::default();
                (all.add(address, Arc::clone(&usage)), usage)
            })
        };
        counts.iter().enumerate().map(|(number, count)| of(number, *count).collect()).collect()
    }

    fn idle(opened: &[Vec<(Closable, Arc<ConnectionUse>)>]) -> Vec<usize> {
        let of = |all: &Vec<(Closable, Arc<ConnectionUse>)>| {
            all.iter().filter(|(_, usage)| usage.is_idle()).count()
        };
        opened.iter().map(of).collect()
    }

    #[test]
    fn the_addresses_with_the_most_idle_connections_lose_them_first() {
        let log = Logger::root(Discard, o!());
        for (counts, open, left) in [
            // 90 is near, and then 5 more are closed.
            ([50, 30, 9, 0], 89, [50, 30, 9, 0]),
            ([50, 30, 10, 0], 90, [45, 30, 10, 0]),
            ([50, 40, 9, 1], 100, [38, 37, 9, 1]),
            ([33, 33, 33, 1], 100, [28, 28, 28, 1]),
            // The others are agents.
            ([1, 1, 1, 2], 100, [0, 0, 0, 0]),
        ] {
            let all = IdleConnections::new();
            let mut opened = opened(&all, &counts);
            all.make_room(open, 100, NOW, &log);
            assert_eq!(idle(&opened), left, "{counts:?} {open}");
            let closed = counts.iter().sum::<usize>() - left.iter().sum::<usize>();
            assert_eq!(all.closed(), closed as u64);
            // Those that are closing count as closed, and no look follows at once.
            all.make_room(open, 100, NOW + Span(99), &log);
            all.make_room(open, 100, NOW + Span(100), &log);
            assert_eq!(idle(&opened), left, "{counts:?} {open}");
            opened.clear();
            assert!(all.connections.lock().of_addresses.is_empty());
        }
    }

    #[test]
    fn the_oldest_of_an_address_is_closed_first() {
        let log = Logger::root(Discard, o!());
        let all = IdleConnections::new();
        let opened = opened(&all, &[9]);
        all.make_room(9, 10, NOW, &log);
        let is_idle: Vec<_> = opened[0].iter().map(|(_, usage)| usage.is_idle()).collect();
        assert_eq!(is_idle, [&[false][..], &[true; 8]].concat());
    }
}
