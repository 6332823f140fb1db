//! A connection's bytes while it speaks HTTP: a peer that does not read its answers is not read either.
//!
//! actix-http reads and answers pipelined requests whether their answers leave or not, and polls without an end while
//! its read buffer is full. So [`HttpStream`] reads nothing while a write is blocked, and the next request waits until
//! the answers before it were taken ([`HttpFlow::answers_taken`]). [`HttpFlow`] also counts bytes, which shows a
//! connection that is polled and makes no progress.

use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use futures_util::future::LocalBoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What a connection and its requests know of its bytes: in the data that requests have of their connection.
#[derive(Default)]
pub struct HttpFlow {
    is_blocked: Cell<bool>,
    /// The task of the connection, if it waits until the socket takes bytes again.
    waiting: Cell<Option<Waker>>,
    bytes: Cell<u64>,
    /// What the connection becomes when the HTTP service has ended.
    upgraded: Cell<Option<LocalBoxFuture<'static, ()>>>,
}

/// The stream that actix-http reads and writes.
pub(super) struct HttpStream<T> {
    io: T,
    flow: Rc<HttpFlow>,
}

impl HttpFlow {
    /// Waits until the socket has taken all that was written to it.
    pub async fn answers_taken(&self) {
        poll_fn(|cx| self.poll_unblocked(cx)).await;
    }

    /// How many bytes were read and written.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    pub(super) fn upgrade(&self, connection: LocalBoxFuture<'static, ()>) {
        self.upgraded.set(Some(connection));
    }

    pub(super) fn take_upgraded(&self) -> Option<LocalBoxFuture<'static, ()>> {
        self.upgraded.take()
    }

    fn poll_unblocked(&self, cx: &Context<'_>) -> Poll<()> {
        if !self.is_blocked.get() {
            return Poll::Ready(());
        }
        // Reader and requests belong to one task: one waker is enough.
        self.waiting.set(Some(cx.waker().clone()));
        Poll::Pending
    }

    fn written<R>(
        &self,
        result: Poll<io::Result<R>>,
        bytes: impl Fn(&R) -> usize,
    ) -> Poll<io::Result<R>> {
        if let Poll::Ready(Ok(written)) = &result {
            self.count(bytes(written));
        }
        self.is_blocked.set(result.is_pending());
        if result.is_ready()
            && let Some(waiting) = self.waiting.take()
        {
            waiting.wake();
        }
        result
    }

    fn count(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes as u64);
    }
}

impl fmt::Debug for HttpFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (is_blocked, bytes) = (self.is_blocked.get(), self.bytes.get());
        f.debug_struct("HttpFlow").field("is_blocked", &is_blocked).field("bytes", &bytes).finish()
    }
}

impl<T> HttpStream<T> {
    pub(super) fn new(io: T, flow: Rc<HttpFlow>) -> Self {
        Self { io, flow }
    }

    pub(super) fn flow(&self) -> &Rc<HttpFlow> {
        &self.flow
    }

    pub(super) fn into_inner(self) -> T {
        self.io
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for HttpStream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.flow.poll_unblocked(cx).is_pending() {
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buffer);
        self.flow.count(buffer.filled().len() - before);
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for HttpStream<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.flow.written(written, |bytes| *bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.flow.written(written, |bytes| *bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
