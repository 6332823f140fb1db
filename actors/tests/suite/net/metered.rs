//! Streams that count their bytes, so that a test knows when no byte is in flight.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::clockwork::{self, settle};

/// The traffic of one connection. The end of a stream counts as one more byte.
#[derive(Debug, Default, Clone)]
pub(crate) struct Traffic {
    server: Rc<End>,
    peer: Rc<End>,
}

/// One end of a connection.
#[derive(Debug, Default)]
struct End {
    sent: Cell<usize>,
    got: Cell<usize>,
    is_over: Cell<bool>,
}

/// A stream whose end of the traffic is counted.
#[derive(Debug)]
pub(crate) struct Metered {
    stream: TcpStream,
    end: Rc<End>,
}

impl Traffic {
    pub(crate) fn of_server(&self, stream: TcpStream) -> Metered {
        Metered { stream, end: Rc::clone(&self.server) }
    }

    pub(crate) fn of_peer(&self, stream: TcpStream) -> Metered {
        Metered { stream, end: Rc::clone(&self.peer) }
    }

    /// Lets everything happen that needs no time, until nothing is on its way.
    pub(crate) async fn settle(&self) {
        let is_over = |turn: &[_; 2]| turn[0] == turn[1] && self.is_at_rest();
        clockwork::until("bytes on their way", async || self.turn().await, is_over).await;
    }

    /// Runs all tasks that need no time until none makes progress: the peer may not be reading.
    pub(crate) async fn stall(&self) {
        let is_over = |turn: &[_; 2]| turn[0] == turn[1];
        clockwork::until("bytes on their way", async || self.turn().await, is_over).await;
    }

    /// Waits until the server has sent so many bytes.
    pub(crate) async fn until_server_sent(&self, bytes: usize) {
        let sent = async || self.server.sent.get();
        clockwork::until("bytes sent", sent, |sent| *sent >= bytes).await;
    }

    /// What was sent and received before a turn of all tasks, and after it.
    async fn turn(&self) -> [[usize; 4]; 2] {
        let before = self.counts();
        settle().await;
        [before, self.counts()]
    }

    fn is_at_rest(&self) -> bool {
        let Self { server, peer } = self;
        let has_arrived =
            |from: &End, to: &End| to.is_over.get() || from.sent.get() <= to.got.get();
        has_arrived(server, peer) && has_arrived(peer, server)
    }

    fn counts(&self) -> [usize; 4] {
        let Self { server, peer } = self;
        [server.sent.get(), server.got.get(), peer.sent.get(), peer.got.get()]
    }
}

impl End {
    /// Ends the sending side. Bytes in flight to a dropped stream are not read.
    fn ends(&self) {
        if !self.is_over.replace(true) {
            self.sent.set(self.sent.get() + 1);
        }
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        self.end.ends();
    }
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (before, room) = (buf.filled().len(), buf.remaining());
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let bytes = buf.filled().len() - before;
        let is_end = bytes == 0 && room > 0;
        self.end.got.set(self.end.got.get() + if is_end { 1 } else { bytes });
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Metered {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let bytes = ready!(Pin::new(&mut self.stream).poll_write(cx, buf))?;
        self.end.sent.set(self.end.sent.get() + bytes);
        Poll::Ready(Ok(bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, bufs))?;
        self.end.sent.set(self.end.sent.get() + bytes);
        Poll::Ready(Ok(bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
        self.end.ends();
        Poll::Ready(Ok(()))
    }
}
