//! A limit of concurrent WebSocket connections of each address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use slog::Logger;
use state_machine::Time;

use super::refusals::{RefusalLog, Refusals, Sender, Tally};

/// The limit that all threads share. It remembers the addresses that have a connection.
pub(super) struct ConnectionLimiter {
    connections_max: usize,
    log: RefusalLog,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    addresses: HashMap<IpAddr, Address>,
    refusals: Refusals,
}

#[derive(Default)]
struct Address {
    connections: usize,
    tally: Tally,
}

impl ConnectionLimiter {
    /// Allows each address this many connections; 0 is no limit.
    pub(super) fn new(setting: &'static str, connections_max: usize, log: Logger) -> Self {
        Self { connections_max, log: RefusalLog::new(setting, log), state: Mutex::default() }
    }

    /// Counts a connection until it is [closed](Self::close), or refuses it. Refusals are logged.
    pub(super) fn try_open(&self, address: IpAddr, now: Time) -> bool {
        if self.connections_max == 0 {
            return true;
        }
        let mut state = self.lock();
        let State { addresses, refusals } = &mut *state;
        let of_address = addresses.entry(address).or_default();
        if of_address.connections < self.connections_max {
            of_address.connections += 1;
            return true;
        }
        let report = refusals.count(Sender::Address(address), &mut of_address.tally, now);
        drop(state);
        report.inspect(|report| self.log.write(report));
        false
    }

    /// The end of a connection that was counted.
    pub(super) fn close(&self, address: IpAddr) {
        let mut state = self.lock();
        let Some(of_address) = state.addresses.get_mut(&address) else { return };
        of_address.connections -= 1;
        if of_address.connections == 0 {
            state.addresses.remove(&address);
        }
    }

    /// Logs what was refused since the last line, if a line is due.
    pub(super) fn report(&self, now: Time) {
        let report = self.lock().refusals.rest(now);
        report.inspect(|report| self.log.write(report));
    }

    /// The name of the limit, and how many connections it has refused.
    pub(super) fn refused(&self) -> (&'static str, u64) {
        (self.log.setting(), self.lock().refusals.in_all())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic cannot leave the state half-updated.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use slog::{Discard, o};

    use super::*;

    #[test]
    fn an_address_is_forgotten_when_its_last_connection_closes() {
        let log = Logger::root(Discard, o!());
        let limiter = ConnectionLimiter::new("a_limit", 2, log);
        let address = |number: u32| IpAddr::from(number.to_be_bytes());
        for number in 0..100 {
            let open = |_: &u32| limiter.try_open(address(number), Time(1_000_000));
            assert_eq!((0..5).filter(open).count(), 2);
        }
        assert_eq!(limiter.lock().addresses.len(), 100);
        for number in 0..100 {
            limiter.close(address(number));
            assert!(limiter.try_open(address(number), Time(1_000_000)));
            limiter.close(address(number));
            limiter.close(address(number));
        }
        assert!(limiter.lock().addresses.is_empty());
        assert_eq!(limiter.refused(), ("a_limit", 300));
    }
}
