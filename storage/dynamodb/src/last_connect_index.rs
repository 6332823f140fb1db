//! The keys of the `last_connect` index, by hour and shard (docs/sources.md#table-functions). A
//! global index has no order among partition keys, so that each key needs a query.

use std::iter;

use state_machine::LastConnect;
use storage::maintenance::MonthRange;

// The factors of the decimal fields in YYYYMMDDHHPPPP.
const HOUR: u64 = 10_000;
const DAY: u64 = 100 * HOUR;
const MONTH: u64 = 100 * DAY;

/// All keys of the months, in order, with `spread` shards per hour.
pub(crate) fn keys(months: MonthRange, spread: usize) -> impl Iterator<Item = LastConnect> {
    let spread = spread.clamp(1, LastConnect::SHARDS_MAX) as u64;
    let MonthRange { first, last } = months;
    let months = iter::successors(Some(first), |month| Some(month.next()));
    let months = months.take_while(move |month| *month <= last);
    let months = months.map(|month| MonthRange { first: month, last: month }.keys().start.0);
    let days = months.flat_map(|month| (1..=days_of(month)).map(move |day| month + day * DAY));
    let hours = days.flat_map(|day| (0..24).map(move |hour| day + hour * HOUR));
    hours.flat_map(move |hour| (1..=spread).map(move |shard| LastConnect(hour + shard)))
}

/// The days of the month of a key.
fn days_of(key: u64) -> u64 {
    let (year, month) = (key / MONTH / 100, key / MONTH % 100);
    let civil = time::Month::try_from(month as u8);
    civil.map_or(31, |civil| civil.length(year as i32).into())
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
        assert!(keys(months, 3).eq(expected));
    }

    #[test]
    fn an_hour_has_as_many_keys_as_shards() {
        let month = Month::new(2026, 12).unwrap();
        assert_eq!(keys(MonthRange { first: month, last: month }, 10).count(), 31 * 24 * 10);
    }
}
