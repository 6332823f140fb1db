//! The socket of a connection after it was taken from HTTP.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_http::error::DispatchError;
use actix_web::Error;
use bytes::Bytes;
use futures_util::Stream;
use futures_util::future::LocalBoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::http::Io;
use super::io::Socket;

/// Bytes that a connection keeps for a peer that does not read. Above it, its output is not polled.
pub(super) const UNSENT_BYTES_MAX: usize = 8 * 1024;

/// What a connection does now.
pub(super) type Part = LocalBoxFuture<'static, Ended>;

/// The end of a part.
pub(super) enum Ended {
    Connection(Result<(), DispatchError>),
    /// The connection continues as this: a WebSocket, an event stream, parked, or HTTP again.
    Http(Part),
}

/// What is written to a socket that was taken from HTTP.
pub(super) trait Output: Stream<Item = Result<Bytes, Error>> + Unpin {
    /// Whether it is polled though its peer does not read. If not, the task is woken when this changes.
    fn must_end(&mut self, _: &mut Context<'_>) -> bool {
        false
    }
}

/// A socket that was taken from HTTP.
pub(super) struct TakenSocket<T, O> {
    pub(super) socket: Rc<Socket<T>>,
    /// The client of a WebSocket, which writes to the socket itself, or the rest of an answer.
    pub(super) output: O,
}

impl<T: Io, O: Output> TakenSocket<T, O> {
    /// Writes the output until it ends, and then waits a moment for the peer to close its end.
    #[expect(clippy::manual_async_fn, reason = "it would have room for the output twice")]
    pub(super) fn run(mut self, linger: Duration) -> impl Future<Output = Ended> {
        async move {
            if poll_fn(|cx| self.poll_output(cx)).await.is_ok() {
                // In an allocation of its own, which no open connection has.
                let _ = Box::pin(timeout(linger, self.close())).await;
            }
            Ended::Connection(Ok(()))
        }
    }

    /// The output is polled while the peer reads: an answer to each of its frames is bounded by that.
    fn poll_output(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.socket.write(cx)? < UNSENT_BYTES_MAX || self.output.must_end(cx) {
            match Pin::new(&mut self.output).poll_next(cx) {
                Poll::Ready(Some(Ok(bytes))) => self.socket.add(&bytes),
                Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(Ok(())),
                Poll::Pending => {
                    self.socket.write(cx)?;
                    break;
                }
            }
        }
        Poll::Pending
    }

    async fn close(self) -> io::Result<()> {
        let Self { socket, output } = self;
        drop(output);
        let Some((mut io, unsent)) = Rc::into_inner(socket).map(Socket::into_parts) else {
            return Ok(());
        };
        io.write_all(&unsent).await?;
        close(io).await
    }
}

/// Closes this end, and reads until the peer has closed its own: else what it still sends would reset the connection,
/// and it might not receive the last bytes.
pub(super) async fn close<T: Io>(mut io: T) -> io::Result<()> {
    io.shutdown().await?;
    let mut unread = [0; 512];
    while io.read(&mut unread).await? > 0 {}
    Ok(())
}
