//! A token bucket: limits how many requests pass in a time.

use crate::time::{Span, Time};

/// How many requests pass in a time, and how many at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    /// Tokens in each `period`; 0 is no limit.
    tokens: u64,
    period: Span,
    /// Capacity in tokens, at least 1.
    burst: u64,
}

/// Each request that passes takes one token, and time refills them up to the burst.
///
/// The bucket counts in shares of a token, of which a token has as many as the period has milliseconds. A rate of one
/// token in the period refills one share in a millisecond. So nothing is rounded, and the rate does not drift.
///
/// Of many buckets with one [`Rate`] each is only 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenBucket {
    shares: u64,
    filled_at: Time,
}

impl Rate {
    /// `tokens` in each `period`, and up to `burst` (at least 1) at once. 0 tokens are no limit.
    pub fn new(tokens: u64, period: Span, burst: u64) -> Self {
        Self { tokens, period, burst: burst.max(1) }
    }

    /// As many at once as in a second; 0 is no limit.
    pub fn per_second(tokens: usize) -> Self {
        Self::with_full_burst(tokens, Span::from_secs(1))
    }

    /// As many at once as in a minute; 0 is no limit.
    pub fn per_minute(tokens: usize) -> Self {
        Self::with_full_burst(tokens, Span::from_secs(60))
    }

    fn with_full_burst(tokens: usize, period: Span) -> Self {
        let tokens = u64::try_from(tokens).unwrap_or(u64::MAX);
        Self::new(tokens, period, tokens)
    }

    /// The tokens of a period; 0 is no limit.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    pub fn bucket(&self) -> TokenBucket {
        TokenBucket { shares: self.capacity(), filled_at: Time(0) }
    }

    fn capacity(&self) -> u64 {
        self.burst.saturating_mul(self.period.0)
    }
}

impl TokenBucket {
    /// Takes a token for one request if `reserve` more are left. Otherwise returns how long until that is so.
    pub fn try_acquire(&mut self, rate: &Rate, reserve: u64, now: Time) -> Result<(), Span> {
        self.require(rate, reserve, now)?;
        if rate.tokens > 0 {
            self.shares -= rate.period.0;
        }
        Ok(())
    }

    /// Takes `tokens`, or a whole burst if they are more. Otherwise returns how long until there are as many.
    pub fn try_acquire_many(&mut self, rate: &Rate, tokens: u64, now: Time) -> Result<(), Span> {
        let tokens = tokens.clamp(1, rate.burst);
        self.require(rate, tokens - 1, now)?;
        if rate.tokens > 0 {
            self.shares -= tokens * rate.period.0;
        }
        Ok(())
    }

    /// Whether [`try_acquire`](Self::try_acquire) would take a token now.
    pub fn require(&mut self, rate: &Rate, reserve: u64, now: Time) -> Result<(), Span> {
        if rate.tokens == 0 {
            return Ok(());
        }
        self.refill(rate, now);
        let needed = reserve.saturating_add(1).saturating_mul(rate.period.0);
        match needed.checked_sub(self.shares) {
            None | Some(0) => Ok(()),
            Some(missing) => Err(Span(missing.div_ceil(rate.tokens))),
        }
    }

    /// If the clock is set back, nothing is refilled, and refills continue from the new time.
    /// Otherwise no request would pass until the clock reached the old time again.
    fn refill(&mut self, rate: &Rate, now: Time) {
        let gained = now.since(self.filled_at).0.saturating_mul(rate.tokens);
        self.shares = self.shares.saturating_add(gained).min(rate.capacity());
        self.filled_at = now;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cases;

    const NOW: Time = Time(1_000_000_000);
    const SECOND: Span = Span(1000);

    struct Limit(Rate, TokenBucket);

    impl Limit {
        fn new(per_second: u64, burst: u64) -> Self {
            let rate = Rate::new(per_second, SECOND, burst);
            Self(rate, rate.bucket())
        }

        fn try_acquire(&mut self, now: Time) -> bool {
            self.1.try_acquire(&self.0, 0, now).is_ok()
        }
    }

    /// The number of requests, out of 10,000, that pass at once.
    fn passing(bucket: &mut Limit, now: Time) -> usize {
        (0..10_000).filter(|_| bucket.try_acquire(now)).count()
    }

    #[test]
    fn a_burst_passes_and_then_as_many_as_the_rate_allows() {
        let mut bucket = Limit::new(20, 5);
        assert_eq!(passing(&mut bucket, NOW), 5);
        assert_eq!(passing(&mut bucket, NOW + Span(49)), 0);
        assert_eq!(passing(&mut bucket, NOW + Span(50)), 1);
        assert_eq!(passing(&mut bucket, NOW + Span(150)), 2);
        assert_eq!(passing(&mut bucket, NOW + Span(60_000)), 5);
    }

    #[test]
    fn a_rate_of_zero_is_no_limit() {
        assert_eq!(passing(&mut Limit::new(0, 0), NOW), 10_000);
    }

    #[test]
    fn a_burst_of_zero_counts_as_one() {
        let mut bucket = Limit::new(1, 0);
        assert_eq!(passing(&mut bucket, NOW), 1);
        assert_eq!(passing(&mut bucket, NOW + Span(1000)), 1);
    }

    #[test]
    fn a_rate_that_does_not_divide_a_second_does_not_drift() {
        let mut bucket = Limit::new(7, 3);
        let hour = (0..3_600_000).filter(|at| bucket.try_acquire(NOW + Span(*at))).count();
        assert_eq!(hour, 7 * 3600 + 3 - 1, "the last millisecond is not there yet");
    }

    #[test]
    fn a_clock_set_back_refills_nothing_and_refills_continue() {
        let mut bucket = Limit::new(10, 10);
        assert_eq!(passing(&mut bucket, NOW), 10);
        let set_back = Time(NOW.0 - 3_600_000);
        assert_eq!(passing(&mut bucket, set_back), 0);
        assert_eq!(passing(&mut bucket, set_back + Span(100)), 1);
    }

    #[test]
    fn the_greatest_numbers_do_not_overflow() {
        let mut bucket = Limit::new(u64::MAX, u64::MAX);
        assert!(bucket.try_acquire(Time(u64::MAX)));
        assert!(bucket.try_acquire(Time(0)));
        assert!(bucket.try_acquire(Time(u64::MAX)));
    }

    #[test]
    fn a_refused_request_passes_after_the_time_that_it_was_given() {
        let rate = Rate::per_minute(7);
        let mut bucket = rate.bucket();
        let mut acquire = |now| bucket.try_acquire(&rate, 0, now);
        for _ in 0..7 {
            assert_eq!(acquire(NOW), Ok(()));
        }
        let wait = acquire(NOW).unwrap_err();
        assert_eq!(wait, Span(60_000u64.div_ceil(7)));
        assert_eq!(acquire(NOW + Span(wait.0 - 1)), Err(Span(1)));
        assert_eq!(acquire(NOW + wait), Ok(()));
    }

    #[test]
    fn a_reserve_is_left_to_those_who_need_none() {
        let rate = Rate::per_second(10);
        let mut bucket = rate.bucket();
        let passing = |bucket: &mut TokenBucket, reserve| {
            (0..100).filter(|_| bucket.try_acquire(&rate, reserve, NOW).is_ok()).count()
        };
        assert_eq!(passing(&mut bucket, 4), 6);
        assert_eq!(bucket.require(&rate, 3, NOW), Ok(()));
        assert_eq!(bucket.require(&rate, 4, NOW), Err(Span(100)));
        assert_eq!(passing(&mut bucket, 0), 4);
        assert_eq!(bucket.require(&rate, 0, NOW), Err(Span(100)));
    }

    /// The times of the requests that pass, if one is made after each wait.
    fn moments(bucket: &mut Limit, waits: &[u64]) -> Vec<u64> {
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
            let through = moments(&mut Limit::new(per_second, burst), &waits);
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
            let mut bucket = Limit::new(per_second, burst);
            prop_assert_eq!(moments(&mut bucket, &vec![between; count]).len(), count);
        }

        /// A millisecond clock may show a time up to 1 ms early. A burst of one second tolerates
        /// that.
        #[test]
        fn the_limit_itself_is_never_refused_where_a_burst_is_a_second(
            per_second in 2..5000u64,
            count in 1..3000u64,
        ) {
            let mut bucket = Limit::new(per_second, per_second);
            let refused = (0..count).find(|nth| !bucket.try_acquire(NOW + Span(nth * 1000 / per_second)));
            prop_assert_eq!(refused, None);
        }
    }
}
