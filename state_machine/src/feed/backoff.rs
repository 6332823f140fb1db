//! How long a store that failed is left alone.

use crate::time::Span;

/// How often the span doubles: up to 64 times the first.
const DOUBLINGS_MAX: u8 = 6;

/// Counts failures in a row. It counts no further than it matters, so that a machine that only fails
/// has a bounded number of states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Backoff {
    doublings: u8,
}

impl Backoff {
    /// How long to wait after this failure, with what counts the next one.
    pub(super) fn failed(self, retry: Span) -> (Span, Self) {
        let wait = Span(retry.0.saturating_mul(1 << self.doublings));
        (wait, Self { doublings: DOUBLINGS_MAX.min(self.doublings + 1) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_doubles_up_to_64_times() {
        let mut backoff = Backoff::default();
        let mut waits = Vec::new();
        for _ in 0..9 {
            let (wait, next) = backoff.failed(Span(100));
            waits.push(wait.0);
            backoff = next;
        }
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 6400, 6400, 6400]);
        assert_eq!(backoff.failed(Span(u64::MAX)).0, Span(u64::MAX));
    }
}
