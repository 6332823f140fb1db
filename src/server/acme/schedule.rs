//! When a certificate is ordered: a function of the one in use and of the orders that failed.

use serde::{Deserialize, Serialize};
use state_machine::{Span, Time};

use crate::system::tls::certificate::Validity;

/// Wait after the first failed order. It doubles with each further one. Let's Encrypt refuses a domain for an hour after 5
/// failed validations in it, and these waits have at most 3.
const RETRY_FIRST: Span = Span::from_secs(15 * 60);

/// Longest wait after a failed order, before the spread.
const RETRY_MAX: Span = Span::from_secs(12 * 60 * 60);

/// A wait is longer by up to one part of this many, so that servers do not retry at the same time.
const SPREAD_PART: u64 = 4;

/// From this many failures on, a restart brings no order forward. With fewer, the operator who has mended the firewall
/// starts again and has a certificate at once. A server that ends again and again reaches this number.
const RESTART_FAILURES_MAX: u32 = 3;

/// Orders that failed since the last one that did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Failures {
    pub number: u32,
    /// When the last one failed, in ms since 1970.
    pub last_ms: u64,
}

impl Failures {
    /// These and an order that began now. It counts as failed until it has ended well.
    pub fn and_one_at(self, now: Time) -> Self {
        Self { number: self.number.saturating_add(1), last_ms: now.0 }
    }

    /// What a server that starts now makes of the failures before.
    pub fn at_start(self, now: Time) -> Self {
        let waits = self.number >= RESTART_FAILURES_MAX;
        // The clock may have been set back since.
        Self { last_ms: if waits { self.last_ms.min(now.0) } else { 0 }, ..self }
    }
}

/// When the next order is due: at once without a certificate, otherwise when a third of its lifetime is left, and not
/// before the wait after a failure is over. Waits differ by `place`, that of this server among all, from 0 to 255.
pub fn order_at(current: Option<Validity>, failures: Failures, place: u8) -> Time {
    let due = current.map_or(Time(0), |Validity { begins, expires }| {
        expires - Span(expires.since(begins).0 / 3)
    });
    match failures.number {
        0 => due,
        number => due.max(Time(failures.last_ms) + wait(number, place)),
    }
}

fn wait(number: u32, place: u8) -> Span {
    let doubled = RETRY_FIRST * 1_u64.checked_shl(number - 1).unwrap_or(u64::MAX);
    let wait = doubled.min(RETRY_MAX);
    Span(wait.0 + wait.0 / SPREAD_PART * u64::from(place) / 255)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000;
    const DAY: u64 = 24 * 60 * MINUTE;

    fn failed(number: u32, last_ms: u64) -> Failures {
        Failures { number, last_ms }
    }

    #[test]
    fn an_order_is_due_without_a_certificate_and_when_a_third_of_its_lifetime_is_left() {
        let valid = |begins, expires| {
            Some(Validity { begins: Time(begins * DAY), expires: Time(expires * DAY) })
        };
        for (current, due) in [
            (None, 0),
            (valid(100, 190), 160),
            (valid(100, 106), 104),
            // One that has ended, and one that never was valid.
            (valid(1, 4), 3),
            (valid(9, 3), 3),
        ] {
            assert_eq!(order_at(current, failed(0, 5 * DAY), 255), Time(due * DAY), "{current:?}");
        }
    }

    #[test]
    fn waits_after_failures_double_to_half_a_day_and_differ_by_a_quarter_at_most() {
        for (number, place, minutes) in [
            (1, 0, 15),
            (2, 0, 30),
            (3, 0, 60),
            (6, 0, 480),
            (7, 0, 720),
            (8, 0, 720),
            (64, 0, 720),
            (65, 0, 720),
            (u32::MAX, 0, 720),
            (3, 255, 75),
            (3, 51, 63),
            (7, 255, 900),
        ] {
            let at = order_at(None, failed(number, DAY), place);
            assert_eq!(at, Time(DAY + minutes * MINUTE), "{number} failures, place {place}");
        }
    }

    #[test]
    fn a_renewal_that_failed_waits_too_and_a_wait_never_brings_an_order_forward() {
        let current = Some(Validity { begins: Time(0), expires: Time(90 * DAY) });
        assert_eq!(order_at(current, failed(1, 60 * DAY), 0), Time(60 * DAY + 15 * MINUTE));
        assert_eq!(order_at(current, failed(1, 10 * DAY), 0), Time(60 * DAY));
    }

    #[test]
    fn a_restart_orders_at_once_after_few_failures_and_waits_after_many() {
        let now = Time(DAY);
        for (number, last, due) in [
            (1, DAY - MINUTE, 15 * MINUTE),
            (2, DAY - MINUTE, 30 * MINUTE),
            (3, DAY - MINUTE, DAY + 59 * MINUTE),
            // The clock was ahead when the order failed.
            (3, 9 * DAY, DAY + 60 * MINUTE),
        ] {
            let at = order_at(None, failed(number, last).at_start(now), 0);
            assert_eq!(at, Time(due), "{number} failures");
        }
    }

    #[test]
    fn a_server_that_ends_during_each_order_makes_at_most_4_an_hour() {
        let (mut stored, mut orders) = (failed(0, 0), Vec::new());
        // It starts each minute of ten hours.
        for minute in 0..600 {
            let now = Time(DAY + minute * MINUTE);
            let failures = stored.at_start(now);
            if order_at(None, failures, 0) <= now {
                stored = failures.and_one_at(now);
                orders.push(now);
            }
        }
        assert!(orders.len() > 4, "{orders:?}");
        for (first, fifth) in orders.iter().zip(&orders[4..]) {
            assert!(fifth.since(*first) > Span(60 * MINUTE), "{first:?} {fifth:?}");
        }
    }

    #[test]
    fn an_hour_has_at_most_4_orders_that_fail() {
        let mut at = Time(0);
        let mut orders = vec![at];
        for number in 1..20 {
            at = order_at(None, failed(number, at.0), 0);
            orders.push(at);
        }
        for (first, fifth) in orders.iter().zip(&orders[4..]) {
            assert!(fifth.since(*first) > Span(60 * MINUTE), "{first:?} {fifth:?}");
        }
    }
}
