//! The limits of what one agent sends.

use slog::{Logger, warn};
use state_machine::token_bucket::Rate;
use state_machine::{Span, Time};

use crate::clock::Clock;
use crate::shared_log_limiter::SharedLogLimiter;

/// Minimum time between two log lines about agents above the rate.
const LOG_EVERY: Span = Span::from_secs(10);

pub struct FrameLimits {
    /// Size of the largest message, in one frame or in several.
    pub(crate) bytes_max: usize,
    /// Frames and KiB together. Above it, nothing is read until the next frame is within it.
    pub(crate) rate: Rate,
    pub(crate) clock: Clock,
    /// Counts frames that had to wait for the rate of their agent.
    delayed: SharedLogLimiter,
    log: Logger,
}

impl FrameLimits {
    /// Messages of up to `bytes_max` bytes. A rate of 0 is no limit.
    pub fn new(bytes_max: usize, frames_per_second_max: usize, clock: Clock, log: Logger) -> Self {
        let rate = Rate::per_second(frames_per_second_max);
        Self { bytes_max, rate, clock, delayed: SharedLogLimiter::new(LOG_EVERY), log }
    }

    /// How many frames had to wait for the rate of their agent, since the start.
    pub fn delayed(&self) -> u64 {
        self.delayed.total()
    }

    pub(crate) fn count_delayed(&self, now: Time) {
        if let Some(frames) = self.delayed.count(now) {
            warn!(self.log, "a user agent sends more than agent_frames_per_second_max allows, it is read more slowly";
                "frames" => frames);
        }
    }
}
