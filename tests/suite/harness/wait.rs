//! Waiting for a condition with a time limit; no test sleeps for a fixed time.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

/// The time limit of operations that take no time, on a machine that is busy.
pub(crate) const AT_ONCE: Duration = Duration::from_secs(10);

/// The interval between two checks of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Awaits the future, and panics if it takes longer than `bound`.
pub(crate) async fn within<F: Future>(bound: Duration, what: &str, future: F) -> F::Output {
    match timeout(bound, future).await {
        Ok(output) => output,
        Err(_) => panic!("not within {bound:?}: {what}"),
    }
}

/// Waits until the condition holds, and panics if that takes longer than `bound`.
pub(crate) async fn until(bound: Duration, what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + bound;
    while !holds().await {
        assert!(Instant::now() < deadline, "not within {bound:?}: {what}");
        sleep(POLL_INTERVAL).await;
    }
}
