//! A token bucket: limits how many requests pass in a second.

use crate::time::Time;

/// Each request that passes takes one token, and time refills them up to the burst.
///
/// The bucket counts in thousandths of a token: a rate of one token a second refills one thousandth
/// in a millisecond. So nothing is rounded, and the rate does not drift.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TokenBucket {
    /// Tokens a second; 0 is no limit.
    per_second: u64,
    /// Capacity, in thousandths of a token.
    capacity: u64,
    /// Thousandths of a token that are left.
    left: u64,
    filled_at: Time,
}

/// Thousandths of one token.
const TOKEN: u64 = 1000;

impl TokenBucket {
    /// A full bucket: `per_second` requests pass in a second, and up to `burst` (at least 1) at
    /// once. A rate of 0 is no limit.
    pub fn new(per_second: u64, burst: u64) -> Self {
        let capacity = burst.max(1).saturating_mul(TOKEN);
        Self { per_second, capacity, left: capacity, filled_at: Time(0) }
    }

    /// Takes a token for one request. Returns false if none is left.
    pub fn try_acquire(&mut self, now: Time) -> bool {
        if self.per_second == 0 {
            return true;
        }
        self.refill(now);
        let left = self.left.checked_sub(TOKEN);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }

    /// If the clock is set back, nothing is refilled, and refills continue from the new time.
    /// Otherwise no request would pass until the clock reached the old time again.
    fn refill(&mut self, now: Time) {
        let gained = now.since(self.filled_at).0.saturating_mul(self.per_second);
        self.left = self.left.saturating_add(gained).min(self.capacity);
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

    /// The number of requests, out of 10,000, that pass at once.
    fn passing(bucket: &mut TokenBucket, now: Time) -> usize {
        (0..10_000).filter(|_| bucket.try_acquire(now)).count()
    }

    #[test]
    fn a_burst_passes_and_then_as_many_as_the_rate_allows() {
        let mut bucket = TokenBucket::new(20, 5);
        assert_eq!(passing(&mut bucket, NOW), 5);
        assert_eq!(passing(&mut bucket, NOW + Span(49)), 0);
        assert_eq!(passing(&mut bucket, NOW + Span(50)), 1);
        assert_eq!(passing(&mut bucket, NOW + Span(150)), 2);
        assert_eq!(passing(&mut bucket, NOW + Span(60_000)), 5);
    }

    #[test]
    fn a_rate_of_zero_is_no_limit() {
        assert_eq!(passing(&mut TokenBucket::new(0, 0), NOW), 10_000);
    }

    #[test]
    fn a_burst_of_zero_counts_as_one() {
        let mut bucket = TokenBucket::new(1, 0);
        assert_eq!(passing(&mut bucket, NOW), 1);
        assert_eq!(passing(&mut bucket, NOW + Span(1000)), 1);
    }

    #[test]
    fn a_rate_that_does_not_divide_a_second_does_not_drift() {
        let mut bucket = TokenBucket::new(7, 3);
        let hour = (0..3_600_000).filter(|at| bucket.try_acquire(NOW + Span(*at))).count();
        assert_eq!(hour, 7 * 3600 + 3 - 1, "the last millisecond is not there yet");
    }

    #[test]
    fn a_clock_set_back_refills_nothing_and_refills_continue() {
        let mut bucket = TokenBucket::new(10, 10);
        assert_eq!(passing(&mut bucket, NOW), 10);
        let set_back = Time(NOW.0 - 3_600_000);
        assert_eq!(passing(&mut bucket, set_back), 0);
        assert_eq!(passing(&mut bucket, set_back + Span(100)), 1);
    }

    #[test]
    fn the_greatest_numbers_do_not_overflow() {
        let mut bucket = TokenBucket::new(u64::MAX, u64::MAX);
        assert!(bucket.try_acquire(Time(u64::MAX)));
        assert!(bucket.try_acquire(Time(0)));
        assert!(bucket.try_acquire(Time(u64::MAX)));
    }

    /// The times of the requests that pass, if one is made after each wait.
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
        fn no_window_of_time_passes_more_than_its_rate_and_one_burst(
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

        /// A millisecond clock may show a time up to 1 ms early. A burst of one second tolerates
        /// that.
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
