//! The keys of the `last_connect` index, by hour and shard (docs/sources.md#table-functions). A
//! global index has no order among partition keys, so that each key needs a query.

use state_machine::LastConnect;

use crate::maintenance::MonthRange;

/// The keys of some months, in order.
#[derive(Debug, Clone)]
pub(super) struct IndexKeys {
    next: LastConnect,
    end: LastConnect,
    /// Shards per hour, from 1.
    spread: u64,
}

impl IndexKeys {
    /// All keys of the months, with `spread` shards per hour.
    pub(super) fn of(months: MonthRange, spread: usize) -> Self {
        let keys = months.keys();
        let spread = spread.clamp(1, LastConnect::SHARDS_MAX) as u64;
        Self { next: first_of_month(keys.start.0 / MONTH), end: keys.end, spread }
    }

    /// The keys from `key` on.
    pub(super) fn from(self, key: LastConnect) -> Self {
        Self { next: key, ..self }
    }

    /// The next key, which is not consumed.
    pub(super) fn peek(&self) -> Option<LastConnect> {
        (self.next < self.end).then_some(self.next)
    }
}

impl Iterator for IndexKeys {
    type Item = LastConnect;

    fn next(&mut self) -> Option<LastConnect> {
        let key = self.peek()?;
        self.next = following(key, self.spread);
        Some(key)
    }
}

// The factors of the decimal fields in YYYYMMDDHHPPPP.
const HOUR: u64 = 10_000;
const DAY: u64 = 100 * HOUR;
const MONTH: u64 = 100 * DAY;

fn following(LastConnect(key): LastConnect, spread: u64) -> LastConnect {
    let (shard, hour) = (key % HOUR, key / HOUR % 100);
    let (day, month) = (key / DAY % 100, key / MONTH);
    if shard < spread {
        LastConnect(key + 1)
    } else if hour < 23 {
        LastConnect(key - shard + HOUR + 1)
    } else if day < days_of(month) {
        LastConnect(key / DAY * DAY + DAY + 1)
    } else {
        first_of_month(if month % 100 == 12 { month + 89 } else { month + 1 })
    }
}

fn first_of_month(month: u64) -> LastConnect {
    LastConnect(month * MONTH + DAY + 1)
}

/// The days of a month YYYYMM.
fn days_of(month: u64) -> u64 {
    let civil = time::Month::try_from((month % 100) as u8);
    civil.map_or(31, |civil| civil.length((month / 100) as i32).into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use state_machine::{Month, Span, Time, Uaid};

    use super::*;

    const HOUR_MS: u64 = 3_600_000;

    /// From January 2027 to March 2028: a year's end and a leap day.
    #[test]
    fn the_keys_are_those_that_connections_of_these_months_get() {
        let months =
            MonthRange { first: Month::new(2027, 1).unwrap(), last: Month::new(2028, 3).unwrap() };
        let begin = Time(1_798_761_600_000);
        let hours = (365 + 31 + 29 + 31) * 24;
        let mut expected = BTreeSet::new();
        for hour in 0..hours {
            for shard in 0..3 {
                let mut uaid = [0; 16];
                uaid[15] = shard;
                let time = begin + Span(hour * HOUR_MS);
                expected.insert(LastConnect::of(time, Uaid(uaid), 3));
            }
        }
        assert!(IndexKeys::of(months, 3).eq(expected));
    }

    #[test]
    fn keys_go_on_from_any_of_them() {
        let month = Month::new(2026, 12).unwrap();
        let all = IndexKeys::of(MonthRange { first: month, last: month }, 10);
        assert_eq!(all.clone().count(), 31 * 24 * 10);
        let last = all.clone().last().unwrap();
        let mut rest = all.from(last);
        assert_eq!((rest.next(), rest.peek(), rest.next()), (Some(last), None, None));
    }
}
