//! How long commits held the writer of the server, from its `/health`.

use std::fmt;

use serde_json::Value;

/// The commits by their time.
pub(crate) struct Commits {
    bounds_ms: Vec<u64>,
    /// By the bound at the same place; the last are above all bounds.
    counts: Vec<u64>,
    /// Since the start of the server.
    longest_ms: u64,
}

impl Commits {
    /// None if the server does not count them.
    pub(crate) fn of(health: &Value) -> Option<Self> {
        let numbers = |name: &str| -> Option<Vec<u64>> {
            health["commits"][name].as_array()?.iter().map(Value::as_u64).collect()
        };
        let longest_ms = health["commits"]["longest_ms"].as_u64()?;
        Some(Self { bounds_ms: numbers("bounds_ms")?, counts: numbers("counts")?, longest_ms })
    }

    /// Those that are not in `earlier`.
    pub(crate) fn since(mut self, earlier: &Self) -> Self {
        self.counts.iter_mut().zip(&earlier.counts).for_each(|(count, before)| *count -= before);
        self
    }

    /// A time that so many percent of the commits do not exceed: a bound, or the longest.
    pub(crate) fn percentile_ms(&self, percent: u64) -> u64 {
        let within = (self.counts.iter().sum::<u64>() * percent).div_ceil(100);
        let mut passed = 0;
        let reached = self.counts.iter().position(|count| {
            passed += count;
            passed >= within
        });
        let bound = reached.and_then(|at| self.bounds_ms.get(at));
        bound.map_or(self.longest_ms, |bound| self.longest_ms.min(*bound))
    }
}

impl fmt::Display for Commits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p99] = [50, 99].map(|percent| self.percentile_ms(percent));
        write!(f, "{p50} / {p99} / {}", self.longest_ms)
    }
}
