//! Agents whose connections replace each other again and again: two programs use one uaid, as after a profile was copied.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use state_machine::Uaid;
use tokio::time::Instant;

/// Replaced connections within [`WITHIN`] from which on an agent has rivals. A phone that changes its network leaves some too.
const REPLACED_MIN: u32 = 10;

/// The time in which they are counted, and for which rivals are remembered after the last one.
pub const WITHIN: Duration = Duration::from_secs(600);

/// Agents that are counted at once. Beyond it those without rivals are forgotten, so that theirs are noticed later.
pub const COUNTED_MAX: usize = 1000;

/// The replaced connections of agents.
#[derive(Debug, Default)]
pub struct Rivals(Mutex<HashMap<Uaid, Replaced>>);

#[derive(Debug)]
struct Replaced {
    /// Within [`WITHIN`] of the first; of an agent with rivals, since then.
    times: u32,
    first: Instant,
    last: Instant,
}

impl Rivals {
    /// A connection was replaced by a newer one.
    pub(crate) fn replaced(&self, uaid: Uaid, now: Instant) {
        let mut all = self.0.lock();
        if all.len() >= COUNTED_MAX && !all.contains_key(&uaid) {
            all.retain(|_, replaced| replaced.has_rivals(now));
            if all.len() >= COUNTED_MAX {
                return;
            }
        }
        let new = Replaced { times: 0, first: now, last: now };
        let replaced = all.entry(uaid).or_insert(new);
        if now - replaced.first >= WITHIN && !replaced.has_rivals(now) {
            (replaced.times, replaced.first) = (0, now);
        }
        replaced.times = replaced.times.saturating_add(1);
        replaced.last = now;
    }

    /// The agents that have rivals, in the order of their ids.
    pub fn agents(&self) -> Vec<Uaid> {
        let now = Instant::now();
        let all = self.0.lock();
        let rivals = all.iter().filter(|(_, replaced)| replaced.has_rivals(now));
        let mut agents: Vec<_> = rivals.map(|(uaid, _)| *uaid).collect();
        agents.sort_unstable();
        agents
    }
}

impl Replaced {
    fn has_rivals(&self, now: Instant) -> bool {
        self.times >= REPLACED_MIN && now - self.last < WITHIN
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const AGENT: Uaid = Uaid([7; 16]);

    #[tokio::test(start_paused = true)]
    async fn an_agent_has_rivals_while_its_connections_replace_each_other() {
        let rivals = Rivals::default();
        for _ in 1..REPLACED_MIN {
            rivals.replaced(AGENT, Instant::now());
            advance(Duration::from_secs(60)).await;
        }
        assert_eq!(rivals.agents(), []);
        for _ in 0..3 {
            rivals.replaced(AGENT, Instant::now());
            assert_eq!(rivals.agents(), [AGENT]);
            advance(WITHIN - Duration::from_millis(1)).await;
        }
        advance(Duration::from_millis(1)).await;
        assert_eq!(rivals.agents(), []);
        rivals.replaced(AGENT, Instant::now());
        assert_eq!(rivals.agents(), [], "it is counted anew");
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_often_loses_its_connection_has_no_rivals() {
        let rivals = Rivals::default();
        for _ in 0..100 {
            rivals.replaced(AGENT, Instant::now());
            assert_eq!(rivals.agents(), []);
            advance(WITHIN / (REPLACED_MIN - 1) + Duration::from_millis(1)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn few_agents_are_counted_and_those_with_rivals_stay() {
        let rivals = Rivals::default();
        let replace = |uaid| rivals.replaced(uaid, Instant::now());
        for _ in 0..REPLACED_MIN {
            replace(AGENT);
        }
        for number in 0..3 * COUNTED_MAX as u128 {
            replace(Uaid(number.to_be_bytes()));
            assert!(rivals.0.lock().len() <= COUNTED_MAX);
        }
        assert_eq!(rivals.agents(), [AGENT]);
    }
}
