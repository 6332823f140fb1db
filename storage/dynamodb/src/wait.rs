//! Waits for an operation that the server is about to finish.

use std::time::Duration;

use tokio::time::sleep;

use crate::client::DynamoClient;
use crate::error::CallError;

/// How long creating or dropping a table may take. AWS needs some ten seconds.
pub(crate) const TABLE_WAIT_MAX: Duration = Duration::from_secs(120);

/// The pauses between polls.
pub(crate) struct Wait<'a> {
    client: &'a DynamoClient,
    operation: &'static str,
    table: &'a str,
    attempt: u32,
    waited: Duration,
    max: Duration,
}

impl<'a> Wait<'a> {
    pub(crate) fn new(client: &'a DynamoClient, operation: &'static str, table: &'a str) -> Self {
        let (waited, max) = (Duration::ZERO, TABLE_WAIT_MAX);
        Self { client, operation, table, attempt: 0, waited, max }
    }

    /// With zero, the first wait fails at once.
    pub(crate) fn at_most(self, max: Duration) -> Self {
        Self { max, ..self }
    }

    /// Waits longer each time, and fails after [`TABLE_WAIT_MAX`] in total, or what was set instead.
    pub(crate) async fn a_while(&mut self, what: &str) -> Result<(), CallError> {
        self.attempt += 1;
        let pause = self.client.pause_before(self.attempt);
        self.waited += pause;
        if self.waited >= self.max {
            let seconds = self.max.as_secs();
            let text = match seconds {
                0 => format!("{what}: try again later"),
                _ => format!("{what}, and was not done after {seconds} s: try again later"),
            };
            return Err(CallError::unreadable(self.operation, self.table, &text));
        }
        sleep(pause).await;
        Ok(())
    }
}
