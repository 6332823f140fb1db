//! Message months: the calendar months, in UTC, that message tables are named after.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::time::Time;

/// A calendar month in UTC; written `2026_11`, as table names carry it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Month {
    year: u16,
    month: u8,
}

/// A move of a user agent from one month to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MonthMove {
    pub from: Month,
    pub to: Month,
}

/// The move that a user agent needs before it is on this month.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DueMove {
    /// An unfinished move is resumed first.
    Resume(MonthMove),
    Begin(MonthMove),
}

impl DueMove {
    /// The move of a record with these months. A record never moves back.
    pub fn of(curmonth: Month, oldmonth: Option<Month>, this_month: Month) -> Option<Self> {
        match oldmonth {
            Some(from) => Some(Self::Resume(MonthMove { from, to: curmonth })),
            None if curmonth < this_month => {
                Some(Self::Begin(MonthMove { from: curmonth, to: this_month }))
            }
            None => None,
        }
    }
}

/// Why a text is not a month.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a month such as 2026_11")]
pub struct MonthError;

/// A date and hour in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CivilHour {
    pub year: u16,
    /// Month, 1 to 12.
    pub month: u8,
    /// Day, 1 to 31.
    pub day: u8,
    /// Hour, 0 to 23.
    pub hour: u8,
}

impl Month {
    /// The month of a year, by its number from 1 to 12.
    pub const fn new(year: u16, month: u8) -> Result<Self, MonthError> {
        if 1 <= month && month <= 12 && 1970 <= year && year <= 9999 {
            Ok(Self { year, month })
        } else {
            Err(MonthError)
        }
    }

    /// The month of `time`, in UTC.
    pub fn of(time: Time) -> Self {
        let CivilHour { year, month, .. } = CivilHour::of(time);
        Self { year, month }
    }

    pub fn next(self) -> Self {
        match self.month {
            12 => Self { year: self.year + 1, month: 1 },
            month => Self { month: month + 1, ..self },
        }
    }

    pub fn previous(self) -> Self {
        match self.month {
            1 => Self { year: self.year - 1, month: 12 },
            month => Self { month: month - 1, ..self },
        }
    }
}

impl CivilHour {
    /// The date and hour of `time`, at most the last hour of the year 9999.
    pub fn of(time: Time) -> Self {
        const LAST_HOUR: u64 = 253_402_297_200;
        let date = OffsetDateTime::from_unix_timestamp(time.as_secs().min(LAST_HOUR) as i64)
            .expect("the years up to 9999 are in range");
        Self {
            year: date.year() as u16,
            month: date.month().into(),
            day: date.day(),
            hour: date.hour(),
        }
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}_{:02}", self.year, self.month)
    }
}

impl fmt::Debug for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for Month {
    type Err = MonthError;

    fn from_str(text: &str) -> Result<Self, MonthError> {
        let (year, month) = text.split_once('_').ok_or(MonthError)?;
        if year.len() != 4 || month.len() != 2 {
            return Err(MonthError);
        }
        Self::new(year.parse().map_err(|_| MonthError)?, month.parse().map_err(|_| MonthError)?)
    }
}

impl TryFrom<String> for Month {
    type Error = MonthError;

    fn try_from(text: String) -> Result<Self, MonthError> {
        text.parse()
    }
}

impl From<Month> for String {
    fn from(month: Month) -> Self {
        month.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(days_since_epoch: u64) -> Time {
        Time(days_since_epoch * 24 * 60 * 60 * 1000)
    }

    #[test]
    fn a_month_begins_at_midnight_utc() {
        let december_2026 = day(20_788);
        assert_eq!(Month::of(december_2026).to_string(), "2026_12");
        assert_eq!(Month::of(Time(december_2026.0 - 1)).to_string(), "2026_11");
    }

    #[test]
    fn leap_days_belong_to_february() {
        assert_eq!(Month::of(day(19_782)).to_string(), "2024_02");
        assert_eq!(Month::of(day(19_783)).to_string(), "2024_03");
    }

    #[test]
    fn every_day_of_four_centuries_follows_the_day_before() {
        let mut last = CivilHour::of(day(0));
        for days in 1..146_097 {
            let this = CivilHour::of(day(days));
            let same_month = (this.year, this.month) == (last.year, last.month);
            let expected_day = if same_month { last.day + 1 } else { 1 };
            assert_eq!(this.day, expected_day, "{this:?} after {last:?}");
            if !same_month {
                let before = Month::new(last.year, last.month).unwrap();
                assert_eq!(Month::new(this.year, this.month).unwrap(), before.next());
                assert_eq!(before.next().previous(), before);
            }
            last = this;
        }
    }

    #[test]
    fn only_the_table_form_is_a_month() {
        assert_eq!("2026_11".parse(), Month::new(2026, 11));
        for wrong in ["", "2026", "2026_13", "2026_00", "26_11", "2026_1", "2026-11"] {
            assert_eq!(wrong.parse::<Month>(), Err(MonthError));
        }
    }
}
