//! The HTTP connections of the public port, of which idle ones are closed when it is nearly full.

use std::collections::{BTreeMap, BinaryHeap};
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

/// The connections that all threads share. Those of addresses without a limit are not among them.
pub(super) struct IdleConnections {
    connections: Mutex<Connections>,
    closed: SharedLogLimiter,
}

/// Every open WebSocket is among them too, so each takes little.
#[derive(Default)]
struct Connections {
    /// By address, of which the oldest comes first.
    all: BTreeMap<(IpAddr, u64), Arc<ConnectionUse>>,
    next: u64,
    looked_at: Option<Time>,
}

impl IdleConnections {
    pub(super) fn new() -> Self {
        let closed = SharedLogLimiter::new(LOG_EVERY);
        Self { connections: Mutex::default(), closed }
    }

    /// Adds a connection until it is [removed](Self::remove). Returns its number.
    pub(super) fn add(&self, address: IpAddr, usage: Arc<ConnectionUse>) -> u64 {
        let mut connections = self.connections.lock();
        let number = connections.next;
        connections.next += 1;
        connections.all.insert((address, number), usage);
        number
    }

    pub(super) fn remove(&self, address: IpAddr, number: u64) {
        self.connections.lock().all.remove(&(address, number));
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
        let closing = self.all.values().filter(|usage| usage.is_closing()).count();
        let idle: Vec<_> = self.all.iter().filter(|(_, usage)| usage.is_idle()).collect();
        // How many an address has, and where they begin.
        let (mut most, mut at) = (BinaryHeap::new(), 0);
        for of_address in idle.chunk_by(|((one, _), _), ((other, _), _)| one == other) {
            most.push((of_address.len(), at));
            at += of_address.len();
        }
        let mut closed = 0;
        while closed + closing < wanted
            && let Some((count, at)) = most.pop()
        {
            closed += usize::from(idle[at].1.close_if_idle());
            if count > 1 {
                most.push((count - 1, at + 1));
            }
        }
        closed
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

    /// The uses of connections of addresses, so many of each.
    fn opened(all: &IdleConnections, counts: &[usize]) -> Vec<Vec<Arc<ConnectionUse>>> {
        let of = |number: usize, count: usize| {
            let address = IpAddr::from((number as u32).to_be_bytes());
            (0..count).map(move |_| {
                let usage = Arc::<ConnectionUse>::default();
                all.add(address, Arc::clone(&usage));
                usage
            })
        };
        counts.iter().enumerate().map(|(number, count)| of(number, *count).collect()).collect()
    }

    fn idle(opened: &[Vec<Arc<ConnectionUse>>]) -> Vec<usize> {
        opened.iter().map(|all| all.iter().filter(|usage| usage.is_idle()).count()).collect()
    }

    #[test]
    fn the_addresses_with_the_most_idle_connections_lose_them_first() {
        let log = Logger::root(Discard, o!());
        for (counts, open, left) in [
            // 90 is near, and then 5 more are closed.
            ([50, 30, 9, 0], 89, [50, 30, 9, 0]),
            ([50, 30, 10, 0], 90, [45, 30, 10, 0]),
            ([50, 40, 9, 1], 100, [37, 38, 9, 1]),
            ([33, 33, 33, 1], 100, [28, 28, 28, 1]),
            // The others are agents.
            ([1, 1, 1, 2], 100, [0, 0, 0, 0]),
        ] {
            let all = IdleConnections::new();
            let opened = opened(&all, &counts);
            all.make_room(open, 100, NOW, &log);
            let mut found = idle(&opened);
            found.sort_unstable();
            let mut left = left;
            left.sort_unstable();
            assert_eq!(found, left, "{counts:?} {open}");
            let closed = counts.iter().sum::<usize>() - left.iter().sum::<usize>();
            assert_eq!(all.closed(), closed as u64);
            // Those that are closing count as closed, and no look follows at once.
            all.make_room(open, 100, NOW + Span(99), &log);
            all.make_room(open, 100, NOW + Span(100), &log);
            assert_eq!(all.closed(), closed as u64, "{counts:?} {open}");
        }
    }

    #[test]
    fn all_connections_are_looked_at_ten_times_in_a_second_at_most() {
        let log = Logger::root(Discard, o!());
        let all = IdleConnections::new();
        let _opened = opened(&all, &[10]);
        for (after_ms, open, closed) in [(0, 9, 1), (99, 10, 1), (100, 10, 2), (50, 11, 3)] {
            // The clock may be set back.
            all.make_room(open, 10, NOW + Span(after_ms), &log);
            assert_eq!(all.closed(), closed, "{after_ms}");
        }
    }

    #[test]
    fn the_oldest_of_an_address_is_closed_first() {
        let log = Logger::root(Discard, o!());
        let all = IdleConnections::new();
        let opened = opened(&all, &[9]);
        all.make_room(9, 10, NOW, &log);
        let is_idle: Vec<_> = opened[0].iter().map(|usage| usage.is_idle()).collect();
        assert_eq!(is_idle, [&[false][..], &[true; 8]].concat());
        all.remove(IpAddr::from([0; 4]), 0);
        assert_eq!(all.connections.lock().all.len(), 8);
    }
}
