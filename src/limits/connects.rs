//! A limit of connections per second of all user agents: storage must keep up when all reconnect.
//!
//! A hello is charged, before anything is read for it. A connection that sends none costs no storage request and takes
//! no place. Half of the burst is kept for hellos that name a uaid: a flood of new agents locks no known one out.

use actors::SharedLogLimiter;
use parking_lot::Mutex;
use slog::{Logger, warn};
use state_machine::token_bucket::{Rate, TokenBucket};
use state_machine::{Span, Time};

/// Minimum time between two log lines.
const LOG_EVERY: Span = Span::from_secs(1);

/// The limiter that all worker threads share.
pub(super) struct ConnectLimiter {
    rate: Rate,
    bucket: Mutex<TokenBucket>,
    refused: SharedLogLimiter,
}

impl ConnectLimiter {
    /// Admits this many per second, and as many at once; 0 is no limit.
    pub(super) fn new(connects_per_second_max: usize) -> Self {
        let rate = Rate::per_second(connects_per_second_max);
        let (bucket, refused) = (Mutex::new(rate.bucket()), SharedLogLimiter::new(LOG_EVERY));
        Self { rate, bucket, refused }
    }

    /// Whether a hello that names a uaid would be admitted now. Refusals are logged.
    pub(super) fn has_room(&self, now: Time, log: &Logger) -> bool {
        self.count(now, log, |bucket| bucket.require(&self.rate, 0, now))
    }

    /// Charges a hello; `is_named` if it names a uaid. Refusals are logged.
    pub(super) fn try_admit(&self, is_named: bool, now: Time, log: &Logger) -> bool {
        let reserve = if is_named { 0 } else { self.rate.tokens() / 2 };
        self.count(now, log, |bucket| bucket.try_acquire(&self.rate, reserve, now))
    }

    /// The name of the limit, and how many connections it has refused.
    pub(super) fn refused(&self) -> (&'static str, u64) {
        ("connects_per_second_max", self.refused.total())
    }

    /// Logs what was refused since the last line, if a line is due.
    pub(super) fn report(&self, now: Time, log: &Logger) {
        self.refused.rest(now).inspect(|refused| write(*refused, log));
    }

    fn count(
        &self,
        now: Time,
        log: &Logger,
        admit: impl FnOnce(&mut TokenBucket) -> Result<(), Span>,
    ) -> bool {
        let is_admitted = admit(&mut self.bucket.lock()).is_ok();
        if !is_admitted {
            self.refused.count(now).inspect(|refused| write(*refused, log));
        }
        is_admitted
    }
}

fn write(refused: u64, log: &Logger) {
    warn!(log, "user agents are refused, more connect than connects_per_second_max allows";
        "refused" => refused);
}

#[cfg(test)]
mod tests {
    use slog::{Discard, o};

    use super::*;
    use crate::system::telemetry::fixture::Log;

    const NOW: Time = Time(1_000_000);

    fn admitted(limiter: &ConnectLimiter, is_named: bool, now: Time) -> usize {
        let log = Logger::root(Discard, o!());
        (0..100).filter(|_| limiter.try_admit(is_named, now, &log)).count()
    }

    #[test]
    fn as_many_are_admitted_at_once_as_in_a_second() {
        let limiter = ConnectLimiter::new(20);
        assert_eq!(admitted(&limiter, true, NOW), 20);
        assert_eq!(admitted(&limiter, true, NOW + Span(500)), 10);
        assert_eq!(admitted(&ConnectLimiter::new(0), true, NOW), 100);
        assert_eq!(admitted(&ConnectLimiter::new(0), false, NOW), 100);
    }

    #[test]
    fn half_of_the_places_are_kept_for_known_agents() {
        let limiter = ConnectLimiter::new(20);
        assert_eq!(admitted(&limiter, false, NOW), 10);
        assert_eq!(admitted(&limiter, true, NOW), 10);
        assert_eq!(admitted(&limiter, false, NOW + Span(500)), 0);
        assert_eq!(admitted(&limiter, false, NOW + Span(1000)), 10);
        assert_eq!(admitted(&ConnectLimiter::new(1), false, NOW), 1);
    }

    #[test]
    fn a_connection_that_sends_no_hello_takes_no_place() {
        let (limiter, log) = (ConnectLimiter::new(20), Logger::root(Discard, o!()));
        assert!((0..100).all(|_| limiter.has_room(NOW, &log)));
        assert_eq!(admitted(&limiter, true, NOW), 20);
        assert!(!limiter.has_room(NOW, &log));
        assert!(limiter.has_room(NOW + Span(50), &log));
        assert_eq!(limiter.refused().1, 81);
    }

    #[test]
    fn refusals_are_logged_once_a_second() {
        let (logger, mut log) = Log::new();
        let limiter = ConnectLimiter::new(1);
        for (after_ms, is_admitted, lines) in [
            (0, true, 0),
            (0, false, 1),
            (999, false, 0),
            (1000, true, 0),
            (1000, false, 1),
            (1999, false, 0),
        ] {
            let admitted = limiter.try_admit(true, NOW + Span(after_ms), &logger);
            assert_eq!((admitted, log.read().count()), (is_admitted, lines), "{after_ms}");
        }
        for lines in [1, 0] {
            limiter.report(NOW + Span(2000), &logger);
            assert_eq!(log.read().count(), lines);
        }
    }
}
