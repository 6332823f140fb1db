//! One limit: a rate for each of its senders.

use std::convert::Infallible;

use parking_lot::Mutex;
use quick_cache::unsync::Cache;
use slog::Logger;
use state_machine::token_bucket::{Rate, TokenBucket};
use state_machine::{Span, Time};

use super::refusals::{Refusals, Sender, Tally};

/// A request above a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many requests of this {}: try again after {} s", who(.policy), seconds(*.wait))]
pub struct OverLimit {
    /// The kind of sender, which names the limit in `RateLimit-Policy`.
    pub policy: &'static str,
    pub per_minute: u64,
    /// When one more request passes.
    pub wait: Span,
}

/// The limit that all threads share. It remembers so many senders and forgets the others, which then start anew with
/// a full burst.
pub(super) struct Limiter {
    policy: &'static str,
    rate: Rate,
    pub(super) refusals: Refusals,
    senders: Mutex<Cache<Sender, Entry>>,
}

struct Entry {
    bucket: TokenBucket,
    tally: Tally,
}

impl Limiter {
    /// Allows each sender this many requests a minute, and as many at once; 0 is no limit.
    pub(super) fn new(
        setting: &'static str,
        policy: &'static str,
        per_minute: usize,
        senders_max: usize,
        log: Logger,
    ) -> Self {
        let senders = Mutex::new(Cache::new(senders_max));
        let (rate, refusals) = (Rate::per_minute(per_minute), Refusals::new(setting, log));
        Self { policy, rate, refusals, senders }
    }

    /// Counts a request, or refuses it. Refusals are logged.
    pub(super) fn charge(&self, sender: Sender, now: Time) -> Result<(), OverLimit> {
        let per_minute = self.rate.tokens();
        if per_minute == 0 {
            return Ok(());
        }
        let mut senders = self.senders.lock();
        let new = || Entry { bucket: self.rate.bucket(), tally: Tally::default() };
        let entry = senders.get_mut_or_insert_with(&sender, || Ok::<_, Infallible>(new()));
        let Ok(Some(mut entry)) = entry else { return Ok(()) };
        let Err(wait) = entry.bucket.try_acquire(&self.rate, 0, now) else { return Ok(()) };
        self.refusals.count(sender, &mut entry.tally, now);
        Err(OverLimit { policy: self.policy, per_minute, wait })
    }

    /// Whether a request of this sender would be refused now.
    pub(super) fn is_reached(&self, sender: Sender, now: Time) -> bool {
        let mut senders = self.senders.lock();
        let entry = senders.get_mut(&sender);
        entry.is_some_and(|mut entry| entry.bucket.require(&self.rate, 0, now).is_err())
    }
}

impl OverLimit {
    /// The wait in seconds, at least one.
    pub fn retry_after_s(&self) -> u64 {
        seconds(self.wait)
    }
}

/// The name of a policy in a sentence.
fn who(policy: &str) -> &str {
    match policy {
        "vapid-key" => "VAPID key",
        "user-agent" => "user agent",
        "receipt-subscriptions" => "sender for new receipt subscriptions",
        other => other,
    }
}

fn seconds(wait: Span) -> u64 {
    wait.0.div_ceil(1000).max(1)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::limits::refusals::LOG_EVERY;
    use crate::system::telemetry::fixture::Log;

    const NOW: Time = Time(1_000_000);

    fn limiter(per_minute: usize, senders_max: usize) -> (Limiter, Log) {
        let (logger, log) = Log::new();
        (Limiter::new("a_limit", "sender", per_minute, senders_max, logger), log)
    }

    fn address(number: u32) -> Sender {
        Sender::Address(IpAddr::from(number.to_be_bytes()))
    }

    #[test]
    fn a_wait_is_told_in_whole_seconds_and_never_as_none() {
        for (wait, seconds) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (60_000, 60)] {
            let over = OverLimit { policy: "address", per_minute: 1, wait: Span(wait) };
            assert_eq!(over.retry_after_s(), seconds, "{wait}");
        }
    }

    #[test]
    fn so_many_senders_are_remembered_and_the_others_are_free() {
        let (limiter, _) = limiter(1, 100);
        for number in 0..10_000 {
            assert_eq!(limiter.charge(address(number), NOW), Ok(()), "{number}");
        }
        assert!(limiter.senders.lock().len() <= 100);
    }

    #[test]
    fn a_flood_of_senders_frees_none_that_asks_again_and_again() {
        let (limiter, _) = limiter(1, 100);
        let mut passed = 0;
        for number in 1..10_000 {
            passed += usize::from(limiter.charge(address(0), NOW).is_ok());
            assert_eq!(limiter.charge(address(number), NOW), Ok(()), "{number}");
        }
        assert_eq!(passed, 1);
    }

    #[test]
    fn a_line_names_the_top_talker_since_the_last_line_by_a_hash() {
        let (limiter, mut log) = limiter(1, 100);
        let flood = |number, count, now| {
            for _ in 0..count {
                let _ = limiter.charge(address(number), now);
            }
        };
        // The first refusal is logged at once, the others after ten seconds.
        flood(1, 2, NOW);
        flood(2, 11, NOW);
        flood(3, 31, NOW);
        flood(2, 1, NOW + LOG_EVERY);
        // The rest of a flood needs no further refusal.
        flood(2, 4, NOW + LOG_EVERY + Span(1));
        limiter.refusals.report(NOW + LOG_EVERY + Span(1));
        for _ in 0..2 {
            limiter.refusals.report(NOW + LOG_EVERY + LOG_EVERY);
        }
        let hash = |number| limiter.refusals.hash(address(number));
        let line = |refused: u32, top, of_top: u32| {
            let top = hash(top);
            format!(" refused_of_top={of_top} top={top} refused={refused} limit=a_limit")
        };
        let (debug, normal): (Vec<_>, Vec<_>) =
            log.read().partition(|line| line.text.starts_with("DEBG"));
        let [debug, normal] = [debug, normal]
            .map(|lines| lines.into_iter().map(|line| line.fields).collect::<Vec<_>>());
        assert_eq!(normal, [line(1, 1, 1), line(41, 3, 30), line(4, 2, 4)]);
        let debug = debug.join("");
        assert!(
            debug.contains(" sender=0.0.0.1 ") && debug.contains(" sender=0.0.0.3 "),
            "{debug}"
        );
        assert!(debug.contains(&hash(3)), "{debug}");
        assert_eq!(limiter.refusals.refused(), ("a_limit", 46));
    }
}
