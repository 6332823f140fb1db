//! Retries of transactions that lost to a concurrent one.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::super::client::DynamoClient;
use super::super::error::CallError;

/// Attempts of one call.
const ATTEMPTS_MAX: u32 = 20;

/// The attempts of one call. The last one begins within the time of one request.
pub(super) struct RetryBudget<'a> {
    client: &'a DynamoClient,
    attempt: u32,
    begun: Instant,
    indeterminate: bool,
}

impl<'a> RetryBudget<'a> {
    pub(super) fn new(client: &'a DynamoClient) -> Self {
        Self { client, attempt: 0, begun: Instant::now(), indeterminate: false }
    }

    /// Waits before another attempt. The error is `lost` if there is none.
    pub(super) async fn next_attempt(&mut self, lost: CallError) -> Result<(), CallError> {
        self.attempt += 1;
        self.indeterminate |= lost.is_indeterminate();
        let is_late = self.begun.elapsed() >= self.client.options.operation_timeout;
        if self.attempt >= ATTEMPTS_MAX || is_late {
            return Err(lost.after_writes(self.indeterminate));
        }
        sleep(any_part_of(self.client.pause_before(self.attempt))).await;
        Ok(())
    }
}

/// Jitter, so that two calls that conflicted do not conflict again.
fn any_part_of(pause: Duration) -> Duration {
    let thousandths = RandomState::new().hash_one(0) % 1000;
    pause * thousandths as u32 / 1000
}
