//! The pushes that wait for an ack, or for a bridge: a bounded number in all, and of each user agent.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use parking_lot::Mutex;
use state_machine::Uaid;

#[derive(Debug)]
pub(crate) struct AckWaiters {
    max: usize,
    of_agent_max: usize,
    waiting: Mutex<WaitingPushes>,
}

#[derive(Debug, Default)]
struct WaitingPushes {
    total: usize,
    of_agent: HashMap<Uaid, usize>,
}

/// One push that waits, until it is dropped.
#[derive(Debug)]
pub(crate) struct AckWaiter<'a> {
    waiters: &'a AckWaiters,
    uaid: Uaid,
}

impl AckWaiters {
    pub(crate) fn new(max: usize, of_agent_max: usize) -> Self {
        Self { max, of_agent_max, waiting: Mutex::default() }
    }

    /// Counts a push to this agent, unless it is one too many.
    pub(crate) fn try_add(&self, uaid: Uaid) -> Option<AckWaiter<'_>> {
        let mut waiting = self.waiting.lock();
        if waiting.total >= self.max {
            return None;
        }
        match waiting.of_agent.entry(uaid) {
            Entry::Occupied(of_agent) if *of_agent.get() >= self.of_agent_max => return None,
            entry => *entry.or_default() += 1,
        }
        waiting.total += 1;
        Some(AckWaiter { waiters: self, uaid })
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.lock().total
    }
}

impl Drop for AckWaiter<'_> {
    fn drop(&mut self) {
        let mut waiting = self.waiters.waiting.lock();
        waiting.total -= 1;
        if let Entry::Occupied(mut of_agent) = waiting.of_agent.entry(self.uaid) {
            *of_agent.get_mut() -= 1;
            if *of_agent.get() == 0 {
                of_agent.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_agent_does_not_use_up_the_waiters_of_all() {
        let [one, other] = [1, 2].map(|byte| Uaid([byte; 16]));
        let waiters = AckWaiters::new(3, 2);
        let first = waiters.try_add(one);
        let second = waiters.try_add(one);
        assert!(first.is_some() && second.is_some() && waiters.try_add(one).is_none());
        let third = waiters.try_add(other);
        assert!(third.is_some() && waiters.try_add(other).is_none(), "three wait");
        drop(second);
        assert_eq!(waiters.len(), 2);
        let again = waiters.try_add(one);
        assert!(again.is_some());
        drop((first, third, again));
        assert!(waiters.len() == 0 && waiters.waiting.lock().of_agent.is_empty());
    }
}
