//! Waiting for a condition with a time limit; no test sleeps for a fixed time.

use std::cell::RefCell;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

/// The time limit of operations that take no time, on a machine with several times the load that it can bear. Shorter
/// than the sweeps and timeouts that would hide a missing notification.
pub(crate) const AT_ONCE: Duration = Duration::from_secs(30);

/// The interval between two checks of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// If the server reads nothing for this long, its side of the connection is blocked.
const BLOCKED_AFTER: Duration = Duration::from_secs(1);

/// What the report of a failed wait shows of that which was last seen.
const SEEN_BYTES_MAX: usize = 4000;

thread_local! {
    static SEEN: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

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
        Err(_) => panic!("{}", too_late(bound, what)),
    }
}

/// Waits until the condition holds, and panics if that takes longer than `bound`.
pub(crate) async fn until(bound: Duration, what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + bound;
    while !holds().await {
        assert!(Instant::now() < deadline, "{}", too_late(bound, what));
        sleep(POLL_INTERVAL).await;
    }
}

/// Notes what this thread saw of a server or a program, of which the report of a failed wait shows the end.
pub(crate) fn note(seen: impl AsRef<[u8]>) {
    let seen = seen.as_ref();
    let end = &seen[seen.len().saturating_sub(SEEN_BYTES_MAX)..];
    SEEN.with_borrow_mut(|last| end.clone_into(last));
}

fn too_late(bound: Duration, what: &str) -> String {
    let seen = SEEN.with_borrow(|seen| String::from_utf8_lossy(seen).into_owned());
    format!("not within {bound:?}: {what}; last seen: {seen}")
}
