//! The clock of the machine, which a developer can shift to see a month turn.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use state_machine::Time;

/// What only developers ask for. Not settings: nothing but a command line can switch it on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args)]
pub struct DevArgs {
    /// Allow what only a developer should do
    #[arg(long, hide = true)]
    pub dev: bool,
    /// Run with a clock that is so many seconds ahead of the machine's, or behind it
    #[arg(long, hide = true, requires = "dev", default_value_t = 0, value_name = "SECONDS")]
    #[arg(allow_negative_numbers = true)]
    pub clock_offset_s: i64,
}

/// The machine's clock, shifted or not.
#[derive(Debug, Clone, Copy)]
pub(super) struct SystemClock {
    offset_ms: i64,
}

impl SystemClock {
    pub(super) fn shifted(dev: DevArgs) -> Self {
        Self { offset_ms: dev.clock_offset_s.saturating_mul(1000) }
    }

    pub(super) fn is_shifted(self) -> bool {
        self.offset_ms != 0
    }

    /// What it shows.
    pub(super) fn now(self) -> Time {
        Time(unix_now().0.saturating_add_signed(self.offset_ms))
    }
}

pub(crate) fn unix_now() -> Time {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Time(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}
