//! Losing to others, and trying again: everything here is done on the condition that nobody else was faster.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::super::error::CallError;
use super::super::link::Link;

/// How often one call is tried that others were faster than.
const ATTEMPTS_MAX: u32 = 20;

/// The attempts of one call. Its last one begins before a request would have to be answered.
pub(super) struct Contest<'a> {
    link: &'a Link,
    attempt: u32,
    begun: Instant,
    /// Whether an attempt may have been carried out all the same.
    doubtful: bool,
}

impl<'a> Contest<'a> {
    pub(super) fn new(link: &'a Link) -> Self {
        Self { link, attempt: 0, begun: Instant::now(), doubtful: false }
    }

    /// Waits before another attempt. The error is what is answered where there is none.
    pub(super) async fn again(&mut self, lost: CallError) -> Result<(), CallError> {
        self.attempt += 1;
        self.doubtful |= lost.is_doubtful();
        let is_late = self.begun.elapsed() >= self.link.options.operation_timeout;
        if self.attempt >= ATTEMPTS_MAX || is_late {
            return Err(lost.after_writes(self.doubtful));
        }
        sleep(any_part_of(self.link.pause_before(self.attempt))).await;
        Ok(())
    }
}

/// So that two that lost to each other do not meet again.
fn any_part_of(pause: Duration) -> Duration {
    let thousandths = RandomState::new().hash_one(0) % 1000;
    pause * thousandths as u32 / 1000
}
