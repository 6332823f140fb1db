//! Limits how often a line is logged.

use crate::time::{Span, Time};

/// Allows one line in an interval and counts those it suppresses.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LogLimiter {
    interval: Span,
    suppressed: u64,
    last: Option<Time>,
}

impl LogLimiter {
    /// Allows the first line at once, and each further line at least `interval` after the last one.
    pub const fn new(interval: Span) -> Self {
        Self { interval, suppressed: 0, last: None }
    }

    /// Whether a line may be written now. `Some` has the number of lines suppressed since the last
    /// one.
    ///
    /// If the clock was set back by more than an interval, the line is allowed.
    pub fn allow(&mut self, now: Time) -> Option<u64> {
        let suppressed = self.take(now);
        if suppressed.is_none() {
            self.suppressed = self.suppressed.saturating_add(1);
        }
        suppressed
    }

    /// The number of suppressed lines, if there are any and a line may be written now. So the end of a flood is logged
    /// without another event.
    pub fn rest(&mut self, now: Time) -> Option<u64> {
        if self.suppressed == 0 {
            return None;
        }
        self.take(now)
    }

    fn take(&mut self, now: Time) -> Option<u64> {
        let is_suppressed = self.last.is_some_and(|last| {
            now.since(last) < self.interval && last.since(now) <= self.interval
        });
        if is_suppressed {
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_000_000);

    #[test]
    fn suppressed_lines_are_counted_with_the_next_one_that_is_allowed() {
        let mut limiter = LogLimiter::new(Span(1000));
        let mut allow = |ms| limiter.allow(NOW + Span(ms));
        assert_eq!([allow(0), allow(1), allow(999)], [Some(0), None, None]);
        assert_eq!([allow(1000), allow(1500), allow(9000)], [Some(2), None, Some(1)]);
    }

    #[test]
    fn a_clock_set_back_a_little_suppresses_and_one_set_back_far_does_not() {
        let mut limiter = LogLimiter::new(Span(1000));
        assert_eq!(limiter.allow(NOW), Some(0));
        assert_eq!(limiter.allow(NOW - Span(1000)), None);
        assert_eq!(limiter.allow(NOW - Span(3_600_000)), Some(1));
    }

    #[test]
    fn the_rest_of_a_flood_is_returned_once_after_the_interval() {
        let mut limiter = LogLimiter::new(Span(1000));
        assert_eq!(limiter.rest(NOW), None);
        assert_eq!(limiter.allow(NOW), Some(0));
        assert_eq!(limiter.rest(NOW + Span(5000)), None);
        let mut limiter = LogLimiter::new(Span(1000));
        assert_eq!(
            [limiter.allow(NOW), limiter.allow(NOW), limiter.allow(NOW)],
            [Some(0), None, None]
        );
        assert_eq!(limiter.rest(NOW + Span(999)), None);
        assert_eq!(limiter.rest(NOW + Span(1000)), Some(2));
        assert_eq!(limiter.allow(NOW + Span(1001)), None);
        assert_eq!(limiter.rest(NOW + Span(2000)), Some(1));
        assert_eq!(limiter.rest(NOW + Span(9000)), None);
    }

    #[test]
    fn an_interval_of_zero_suppresses_nothing() {
        let mut limiter = LogLimiter::new(Span::ZERO);
        assert_eq!([limiter.allow(NOW), limiter.allow(NOW)], [Some(0), Some(0)]);
    }
}
