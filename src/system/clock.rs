//! The system clock, which a developer can shift to watch a month turn.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use actix_web::http::header::HttpDate;
use state_machine::Time;

/// The system clock plus a fixed offset.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    offset_ms: i64,
}

impl SystemClock {
    /// A clock that is `offset_s` seconds ahead of the system's.
    pub fn shifted(offset_s: i64) -> Self {
        Self { offset_ms: offset_s.saturating_mul(1000) }
    }

    /// Whether it shows another time than the system.
    pub fn is_shifted(self) -> bool {
        self.offset_ms != 0
    }

    pub fn now(self) -> Time {
        Time(unix_now().0.saturating_add_signed(self.offset_ms))
    }
}

/// The time of the system, 1970 at the earliest.
pub fn unix_now() -> Time {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Time(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}

/// Such as `14 Nov 2023`, in UTC.
pub fn day(seconds: u64) -> String {
    let text = date(seconds);
    text.get(5..16).unwrap_or(&text).to_owned()
}

/// A date of HTTP, in UTC. One after the year 9999 is that year's last.
pub fn date(seconds: u64) -> String {
    const LAST: u64 = 253_402_300_799;
    let time = UNIX_EPOCH + Duration::from_secs(seconds.min(LAST));
    HttpDate::from(time).to_string()
}
