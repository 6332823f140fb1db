//! A limit of concurrent connections of each address.

use std::collections::HashMap;
use std::net::IpAddr;

use parking_lot::Mutex;
use slog::Logger;
use state_machine::Time;

use super::refusals::{Refusals, Sender, Tally};

/// The limit that all threads share. It remembers the addresses that have a connection.
pub(super) struct ConnectionLimiter {
    connections_max: usize,
    pub(super) refusals: Refusals,
    addresses: Mutex<HashMap<IpAddr, Address>>,
}

#[derive(Default)]
struct Address {
    connections: usize,
    tally: Tally,
}

impl ConnectionLimiter {
    /// Allows each address this many connections; 0 is no limit.
    pub(super) fn new(setting: &'static str, connections_max: usize, log: Logger) -> Self {
        let refusals = Refusals::new(setting, log);
        Self { connections_max, refusals, addresses: Mutex::default() }
    }

    /// Counts a connection until it is [closed](Self::close), or refuses it. Refusals are logged.
    pub(super) fn try_open(&self, address: IpAddr, now: Time) -> bool {
        if self.connections_max == 0 {
            return true;
        }
        let mut addresses = self.addresses.lock();
        let of_address = addresses.entry(address).or_default();
        if of_address.connections < self.connections_max {
            of_address.connections += 1;
            return true;
        }
        let sender = Sender::Address(address);
        self.refusals.count(sender, &mut of_address.tally, now);
        false
    }

    /// The end of a connection that was counted.
    pub(super) fn close(&self, address: IpAddr) {
        let mut addresses = self.addresses.lock();
        let Some(of_address) = addresses.get_mut(&address) else { return };
        of_address.connections -= 1;
        if of_address.connections == 0 {
            addresses.remove(&address);
        }
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
        assert_eq!(limiter.addresses.lock().len(), 100);
        for number in 0..100 {
            limiter.close(address(number));
            assert!(limiter.try_open(address(number), Time(1_000_000)));
            limiter.close(address(number));
            limiter.close(address(number));
        }
        assert!(limiter.addresses.lock().is_empty());
        assert_eq!(limiter.refusals.refused(), ("a_limit", 300));
    }
}
