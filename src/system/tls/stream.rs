//! A connection of a port, with TLS or without.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};
use tokio_util::either::Either;

use super::tls_stream::TlsStream;
use crate::system::unread_request;

/// What actix-http answers when the headers of a request are late.
const LATE: &[u8] = b"HTTP/1.1 408";

/// One type for both: the service of a port is compiled once.
pub struct Stream {
    io: Either<TcpStream, Box<TlsStream<TcpStream>>>,
    /// Whether the peer has sent anything.
    has_read: bool,
    /// None where the kernel disconnects a peer that does not read.
    unread: Option<Box<Unread>>,
}

/// How long a peer may leave everything unread.
struct Unread {
    max: Duration,
    /// Since nothing more could be written.
    over: Option<Pin<Box<Sleep>>>,
}

impl Stream {
    /// A peer that takes no byte for `unread_max` is disconnected.
    pub fn plain(stream: TcpStream, unread_max: Option<Duration>) -> Self {
        let unread = unread_max.map(|max| Box::new(Unread { max, over: None }));
        Self { io: Either::Left(stream), has_read: false, unread }
    }

    pub fn tls(stream: TlsStream<TcpStream>) -> Self {
        Self { io: Either::Right(Box::new(stream)), has_read: false, unread: None }
    }

    /// Whether the handshake chose HTTP/2.
    pub fn is_http2(&self) -> bool {
        match &self.io {
            Either::Left(_) => false,
            Either::Right(tls) => tls.protocol() == Some(b"h2"),
        }
    }

    /// A write, or an error if the peer has read nothing for too long.
    fn in_time<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let Some(unread) = &mut self.unread else { return written };
        if written.is_ready() {
            unread.over = None;
            return written;
        }
        let max = unread.max;
        ready!(unread.over.get_or_insert_with(|| Box::pin(sleep(max))).as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buffer);
        self.has_read |= buffer.filled().len() > before;
        read
    }
}

impl AsyncWrite for Stream {
    /// A peer that has sent nothing gets no 408: a browser connects ahead, and would read it as the answer to the request
    /// that it then sends.
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if !self.has_read && bytes.starts_with(LATE) {
            return Poll::Ready(Ok(bytes.len()));
        }
        let replaced = unread_request::with_body(bytes);
        let answer = replaced.as_deref().unwrap_or(bytes);
        let written = Pin::new(&mut self.io).poll_write(cx, answer);
        let written = self.in_time(cx, written);
        if replaced.is_none() {
            return written;
        }
        // The connection ends with this answer, whether the socket takes all of it or not.
        match ready!(written)? == answer.len() {
            true => Poll::Ready(Ok(bytes.len())),
            false => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.in_time(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use actix_web::rt::net::UnixStream;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::{Instant, timeout};

    use super::*;

    const MAX: Duration = Duration::from_secs(2);

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_nothing_is_disconnected_and_a_slow_one_is_not() {
        let (ours, mut peer) = UnixStream::pair().unwrap();
        let ours = std::net::TcpStream::from(OwnedFd::from(ours.into_std().unwrap()));
        let mut stream = Stream::plain(TcpStream::from_std(ours).unwrap(), Some(MAX));
        let writes = async {
            loop {
                stream.write_all(&[0; 4096]).await?;
            }
        };
        let reads = async {
            // The kernel shows that a buffer has room only when much of it was read.
            let mut taken = vec![0; 1 << 20];
            for _ in 0..5 {
                sleep(MAX / 2).await;
                let _bytes = timeout(Duration::ZERO, peer.read_exact(&mut taken)).await;
            }
            Instant::now()
        };
        let (ended, last) = tokio::join!(writes, reads);
        let ended: io::Result<()> = ended;
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let waited = last.elapsed();
        assert!(waited <= MAX && waited > MAX / 4, "{waited:?}");
    }
}
