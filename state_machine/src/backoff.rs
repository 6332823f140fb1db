//! Exponential backoff, without jitter: the caller applies it from its own randomness.

use crate::time::Span;

/// Waits between attempts. Each wait is twice the one before it, up to a maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Backoff {
    initial: Span,
    max: Span,
    /// The next wait. It stops at `max`, so a machine that only fails has a bounded number of
    /// states.
    wait: Span,
}

impl Backoff {
    /// The first wait is `initial`; no wait is longer than `max`.
    pub const fn new(initial: Span, max: Span) -> Self {
        let wait = Self::delay(initial, max, 0);
        Self { initial, max, wait }
    }

    /// The backoff after a store failure: `retry` first, doubled with each failure, at most 64 times `retry`.
    pub fn of_store(retry: Span) -> Self {
        Self::new(retry, retry * 64)
    }

    /// The wait after one more failure.
    #[expect(clippy::should_implement_trait, reason = "it is no iterator: it has no end")]
    pub fn next(&mut self) -> Span {
        let wait = self.wait;
        self.wait = Span(wait.0.saturating_mul(2).min(self.max.0));
        wait
    }

    /// Resets the wait after an attempt that succeeded.
    pub fn reset(&mut self) {
        *self = Self::new(self.initial, self.max);
    }

    /// The wait after `attempt` earlier failures, for a caller that only counts them.
    pub const fn delay(initial: Span, max: Span, attempt: u32) -> Span {
        let factor = if attempt < u64::BITS { 1 << attempt } else { u64::MAX };
        let wait = initial.0.saturating_mul(factor);
        if wait < max.0 { Span(wait) } else { max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_doubles_up_to_the_maximum() {
        let mut backoff = Backoff::new(Span(100), Span(1500));
        let waits: Vec<u64> = (0..6).map(|_| backoff.next().0).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1500, 1500]);
        backoff.reset();
        assert_eq!(backoff.next(), Span(100));
    }

    #[test]
    fn a_first_wait_above_the_maximum_is_the_maximum() {
        assert_eq!(Backoff::new(Span(9), Span(5)).next(), Span(5));
    }

    #[test]
    fn counting_attempts_gives_the_same_waits() {
        let mut backoff = Backoff::new(Span(3), Span(1000));
        for attempt in 0..100 {
            assert_eq!(Backoff::delay(Span(3), Span(1000), attempt), backoff.next());
        }
    }

    #[test]
    fn the_longest_waits_do_not_overflow() {
        let max = Span(u64::MAX);
        assert_eq!(Backoff::delay(max, max, 1), max);
        assert_eq!(Backoff::delay(Span(1), max, u32::MAX), max);
        assert_eq!(Backoff::delay(Span::ZERO, max, 70), Span::ZERO);
    }
}
