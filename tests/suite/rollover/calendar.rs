//! The next November, and the clock offsets that move a server into it.

use state_machine::month::CivilHour;
use state_machine::{Month, Time};

use crate::harness::unix_now_s;

const DAY_S: u64 = 24 * 60 * 60;

/// A day near the end of November, on which the table of December does not exist yet.
const THE_DAY: (u8, u8) = (11, 28);

/// Days from that day to one in December.
const DAYS_LATER: u64 = 5;

/// The next November, and the December after it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Calendar {
    pub(crate) november: Month,
    pub(crate) december: Month,
    /// Seconds from now to noon of the day in November.
    ahead_s: u64,
}

impl Calendar {
    /// Computes the next 28 November.
    pub(crate) fn next_november() -> Self {
        let now_s = unix_now_s();
        let noon_s = now_s - now_s % DAY_S + DAY_S / 2;
        let is_it = |noon_s: &u64| {
            let CivilHour { month, day, .. } = CivilHour::of(Time(noon_s * 1000));
            (month, day) == THE_DAY
        };
        let noon_s = (1..=366).map(|days| noon_s + days * DAY_S).find(is_it);
        let noon_s = noon_s.expect("every year has that day");
        let november = Month::of(Time(noon_s * 1000));
        Self { november, december: november.next(), ahead_s: noon_s - now_s }
    }

    /// Seconds from now to the first instant of December.
    pub(crate) fn to_december_s(self) -> i64 {
        let days = 30 + 1 - u64::from(THE_DAY.1);
        i64::try_from(self.ahead_s + days * DAY_S - DAY_S / 2).expect("it is within a year")
    }

    /// Arguments that set the server's clock to November.
    pub(crate) fn in_november(&self) -> [String; 2] {
        ahead_by(self.ahead_s)
    }

    /// Arguments that set the server's clock to December.
    pub(crate) fn in_december(&self) -> [String; 2] {
        ahead_by(self.ahead_s + DAYS_LATER * DAY_S)
    }

    /// Arguments that set the server's clock two hours later in November.
    pub(crate) fn two_hours_later(&self) -> [String; 2] {
        ahead_by(self.ahead_s + DAYS_LATER * DAY_S + 2 * 60 * 60)
    }
}

fn ahead_by(seconds: u64) -> [String; 2] {
    ["--dev".to_owned(), format!("--clock-offset-s={seconds}")]
}
