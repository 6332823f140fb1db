//! How many of something are let through in a second.

use crate::time::Time;

/// A bucket of tokens: each that is let through takes one, and time puts them back.
///
/// It counts in thousandths of a token, of which one a millisecond comes back for each that a second allows. So
/// nothing is rounded, and nothing drifts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TokenBucket {
    /// 0 is no limit.
    per_second: u64,
    full: u64,
    left: u64,
    filled_at: Time,
}

/// Thousandths that one token is.
const TOKEN: u64 = 1000;

impl TokenBucket {
    /// Lets `per_second` through, and up to `burst` of them at once, but at least one. 0 a second is no limit.
    pub fn new(per_second: u64, burst: u64) -> Self {
        let full = burst.max(1).saturating_mul(TOKEN);
        Self { per_second, full, left: full, filled_at: Time(0) }
    }

    /// Whether one more is let through.
    pub fn try_acquire(&mut self, now: Time) -> bool {
        if self.per_second == 0 {
            return true;
        }
        self.refill(now);
        let rest = self.left.checked_sub(TOKEN);
        self.left = rest.unwrap_or(self.left);
        rest.is_some()
    }

    /// A clock that was set back brings nothing, and counts from where it now stands: otherwise nobody
    /// would be let through until it has caught up.
    fn refill(&mut self, now: Time) {
        let gained = now.since(self.filled_at).0.saturating_mul(self.per_second);
        self.left = self.left.saturating_add(gained).min(self.full);
        self.filled_at = now;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cases;
    use crate::time::Span;

    const NOW: Time = Time(1_000_000_000);

    /// How many of a crowd are let through at once.
    fn let_through(bucket: &mut TokenBucket, now: Time) -> usize {
        (0..10_000).filter(|_| bucket.try_acquire(now)).count()
    }

    #[test]
    fn a_burst_is_let_through_and_then_as_many_as_time_brings() {
        let mut bucket = TokenBucket::new(20, 5);
        assert_eq!(let_through(&mut bucket, NOW), 5);
        assert_eq!(let_through(&mut bucket, NOW + Span(49)), 0);
        assert_eq!(let_through(&mut bucket, NOW + Span(50)), 1);
        assert_eq!(let_through(&mut bucket, NOW + Span(150)), 2);
        assert_eq!(let_through(&mut bucket, NOW + Span(60_000)), 5);
    }

    #[test]
    fn no_limit_lets_everybody_through() {
        assert_eq!(let_through(&mut TokenBucket::new(0, 0), NOW), 10_000);
    }

    #[test]
    fn a_burst_of_nobody_would_let_nobody_through_ever_so_it_is_one() {
        let mut bucket = TokenBucket::new(1, 0);
        assert_eq!(let_through(&mut bucket, NOW), 1);
        assert_eq!(let_through(&mut bucket, NOW + Span(1000)), 1);
    }

    #[test]
    fn a_rate_that_does_not_divide_a_second_does_not_drift() {
        let mut bucket = TokenBucket::new(7, 3);
        let hour = (0..3_600_000).filter(|at| bucket.try_acquire(NOW + Span(*at))).count();
        assert_eq!(hour, 7 * 3600 + 3 - 1, "the last millisecond is not there yet");
    }

    #[test]
    fn a_clock_that_is_set_back_lets_nobody_through_at_once_and_locks_nobody_out() {
        let mut bucket = TokenBucket::new(10, 10);
        assert_eq!(let_through(&mut bucket, NOW), 10);
        let set_back = Time(NOW.0 - 3_600_000);
        assert_eq!(let_through(&mut bucket, set_back), 0);
        assert_eq!(let_through(&mut bucket, set_back + Span(100)), 1);
    }

    #[test]
    fn the_greatest_numbers_do_not_overflow() {
        let mut bucket = TokenBucket::new(u64::MAX, u64::MAX);
        assert!(bucket.try_acquire(Time(u64::MAX)));
        assert!(bucket.try_acquire(Time(0)));
        assert!(bucket.try_acquire(Time(u64::MAX)));
    }

    /// The moments at which one was let through, when one asks after each of these waits.
    fn moments(bucket: &mut TokenBucket, waits: &[u64]) -> Vec<u64> {
        let mut now = NOW;
        let mut through = Vec::new();
        for wait in waits {
            now = now + Span(*wait);
            if bucket.try_acquire(now) {
                through.push(now.0);
            }
        }
        through
    }

    proptest! {
        #![proptest_config(cases::config())]

        #[test]
        fn no_window_of_time_lets_more_through_than_its_length_and_one_burst(
            per_second in 1..5000u64,
            burst in 1..50u64,
            waits in prop::collection::vec(prop_oneof![Just(0), 0..20u64, 0..3000u64], 1..300),
        ) {
            let through = moments(&mut TokenBucket::new(per_second, burst), &waits);
            for (first, from) in through.iter().enumerate() {
                for (last, until) in through.iter().enumerate().skip(first) {
                    let count = (last - first + 1) as u64;
                    prop_assert!(count * 1000 <= per_second * (until - from) + burst * 1000);
                }
            }
        }

        #[test]
        fn a_steady_rate_within_the_limit_is_never_refused(
            per_second in 1..5000u64,
            burst in 1..50u64,
            slower in 0..200u64,
            count in 1..500usize,
        ) {
            let between = 1000u64.div_ceil(per_second) + slower;
            let mut bucket = TokenBucket::new(per_second, burst);
            prop_assert_eq!(moments(&mut bucket, &vec![between; count]).len(), count);
        }

        /// A clock of milliseconds shows a moment up to one too early; a burst of one second bears that.
        #[test]
        fn the_limit_itself_is_never_refused_where_a_burst_is_a_second(
            per_second in 2..5000u64,
            count in 1..3000u64,
        ) {
            let mut bucket = TokenBucket::new(per_second, per_second);
            let refused = (0..count).find(|nth| !bucket.try_acquire(NOW + Span(nth * 1000 / per_second)));
            prop_assert_eq!(refused, None);
        }
    }
}
