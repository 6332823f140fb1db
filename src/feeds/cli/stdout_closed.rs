//! Detects that the reader of standard output is gone.

use std::fs::File;
use std::future::pending;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;

use tokio::io::Interest;
use tokio::net::unix::pipe::Sender;

/// Waits until the other end of a pipe is closed; for ever if `to` is no pipe.
///
/// A write would fail too, but a feed may have nothing to write for a long time.
pub async fn wait(to: impl AsFd) {
    if let Some(pipe) = pipe(to)
        && let Ok(pipe) = Sender::from_owned_fd_unchecked(pipe)
        && pipe.ready(Interest::ERROR).await.is_ok()
    {
        return;
    }
    pending::<()>().await;
}

/// A handle of its own to a pipe, so that writes through other handles block as before.
fn pipe(to: impl AsFd) -> Option<OwnedFd> {
    let file = File::from(to.as_fd().try_clone_to_owned().ok()?);
    file.metadata().is_ok_and(|found| found.file_type().is_fifo()).then(|| file.into())
}

#[cfg(test)]
mod tests {
    use std::io::{Write, pipe};
    use std::time::Duration;

    use tokio::task::yield_now;
    use tokio::time::timeout;

    use super::*;

    const AT_ONCE: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn only_a_closed_pipe_ends_the_wait() {
        let file = tempfile::tempfile().unwrap();
        let ((_read, mut open), (reader, shut)) = (pipe().unwrap(), pipe().unwrap());
        open.write_all(b"x").unwrap();
        let first = async {
            tokio::select! {
                biased;
                () = wait(&file) => "file",
                () = wait(&open) => "open",
                () = wait(&shut) => "shut",
            }
        };
        let close = async {
            yield_now().await;
            drop(reader);
        };
        let (first, ()) = tokio::join!(timeout(AT_ONCE, first), close);
        assert_eq!(first, Ok("shut"));
    }
}
