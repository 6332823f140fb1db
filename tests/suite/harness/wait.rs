//! Waiting for a condition with a time limit; no test sleeps for a fixed time.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

/// The time limit of operations that take no time, on a machine that is busy.
pub(crate) const AT_ONCE: Duration = Duration::from_secs(10);

/// The interval between two checks of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// If the server reads nothing for this long, its side of the connection is blocked.
const BLOCKED_AFTER: Duration = Duration::from_secs(1);

/// More than the kernel buffers of a connection between two processes hold.
const BLOCK_BYTES_MAX: usize = 100_000_000;

/// Writes `bytes` again and again until the server reads no more of them.
pub(crate) async fn write_until_blocked(stream: &mut TcpStream, bytes: &[u8]) {
    let mut written = 0;
    while timeout(BLOCKED_AFTER, stream.write_all(bytes)).await.is_ok() {
        written += bytes.len();
        assert!(written < BLOCK_BYTES_MAX, "the server reads and reads");
    }
}

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
