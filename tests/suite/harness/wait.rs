//! Waiting for something to happen: for a condition and no longer than a bound, never for a time.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

/// How long something may take that happens at once, on a machine that has other things to do too.
pub(crate) const AT_ONCE: Duration = Duration::from_secs(10);

/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What the future brings, which it must within `bound`.
pub(crate) async fn within<F: Future>(bound: Duration, what: &str, future: F) -> F::Output {
    match timeout(bound, future).await {
        Ok(output) => output,
        Err(_) => panic!("not within {bound:?}: {what}"),
    }
}

/// Waits until a condition holds, which it must within `bound`.
pub(crate) async fn until(bound: Duration, what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + bound;
    while !holds().await {
        assert!(Instant::now() < deadline, "not within {bound:?}: {what}");
        sleep(LOOK_EVERY).await;
    }
}
