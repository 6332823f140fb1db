//! A connection's bytes while it speaks HTTP: a peer that does not read its answers is not read either.
//!
//! actix-http reads and answers pipelined requests whether their answers leave or not, decodes all of them at once, and
//! polls without an end while its read buffer is full. So it gets a request when the one before is answered
//! ([`Framing`]), and each request waits for its turn ([`HttpFlow::turn`]): until others had theirs, and until the
//! answers before it were taken. Meanwhile [`HttpStream`] reads nothing that it does not need to notice the end of the
//! connection. [`HttpFlow`] also counts bytes, which shows a connection that is polled and makes no progress.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::task::coop::consume_budget;

use super::framing::{Framing, HEADERS_MAX, Step};
use super::io::Socket;
use super::taken_socket::Part;
use super::usage::ConnectionUse;

/// Bytes of a request that actix-http gets before others have their turn. A larger body takes several turns.
const READ_BYTES_IN_TURN: usize = 8 * 1024;

/// A request that actix-http answers with 431, because of its number of headers.
const TOO_LARGE: [&str; 3] = ["GET / HTTP/1.1\r\n", "a:\r\n", "\r\n"];

/// What a connection and its requests know of its bytes: in the data that requests have of their connection.
#[derive(Default)]
pub(super) struct HttpFlow {
    /// Whether the socket did not take what was written to it.
    is_blocked: Cell<bool>,
    /// Whether a request waits for its turn.
    awaits_turn: Cell<bool>,
    /// Requests that have begun, and those of them that are in progress.
    begun: Cell<u64>,
    in_progress: Cell<u32>,
    /// Whether the body of the last answer may rest, which looks as if the next request were awaited.
    is_streaming: Cell<bool>,
    framing: Cell<Framing>,
    /// Bytes that were read and that actix-http did not get: the rest of a request, or further ones.
    unread: RefCell<BytesMut>,
    /// How many of them belong to the request that it gets.
    owed: Cell<usize>,
    /// The task of the connection, if it waits for either.
    waiting: Cell<Option<Waker>>,
    bytes: Cell<u64>,
    /// Bytes that were read since it was the turn of others.
    read_in_turn: Cell<usize>,
    /// What the connection becomes when the HTTP service has written the head of its last answer.
    handed_over: Cell<Option<Part>>,
    pub(super) usage: Arc<ConnectionUse>,
}

/// A request in progress, until this is dropped.
pub(super) struct Turn(Rc<HttpFlow>);

/// The stream that actix-http reads and writes.
pub(super) struct HttpStream<T> {
    pub(super) socket: Rc<Socket<T>>,
    pub(super) flow: Rc<HttpFlow>,
}

/// What is known of the next request of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextRequest {
    /// Nothing of it was read.
    Absent,
    /// Nothing of it was read since the last answer. A part may have been read before.
    Unknown,
    /// A part of it was read.
    Begun,
}

impl HttpFlow {
    /// Waits until a request may be processed.
    ///
    /// Requests that wait in the buffer of a connection are answered in one poll of its task. One client would keep all
    /// others of the thread waiting for as long as it sends requests that need no wait, and its answers would fill the
    /// memory if it does not read them.
    pub(super) async fn turn(self: Rc<Self>) -> Turn {
        self.begun.set(self.begun.get() + 1);
        self.in_progress.set(self.in_progress.get() + 1);
        self.is_streaming.set(false);
        self.usage.begin_request();
        let turn = Turn(self);
        turn.0.awaits_turn.set(true);
        consume_budget().await;
        poll_fn(|cx| turn.0.poll_until(!turn.0.is_blocked.get(), cx)).await;
        turn.0.awaits_turn.set(false);
        turn.0.wake();
        turn
    }

    /// How many requests have begun.
    pub(super) fn begun(&self) -> u64 {
        self.begun.get()
    }

    /// What is known of the next request, if the connection awaits one, and how many have begun before it. An answer
    /// that is being sent comes first.
    pub(super) fn awaits(&self) -> Option<(u64, NextRequest)> {
        let is_answered = self.in_progress.get() == 0 && !self.is_blocked.get();
        if self.begun.get() == 0 || !is_answered {
            return None;
        }
        let next = match self.framing.get() {
            _ if self.is_streaming.get() => NextRequest::Unknown,
            framing if framing.taken > self.begun.get() => NextRequest::Begun,
            framing if !framing.is_between() => NextRequest::Unknown,
            _ if !self.unread.borrow().is_empty() => NextRequest::Begun,
            _ => NextRequest::Absent,
        };
        Some((self.begun.get(), next))
    }

    /// The body of the answer may rest.
    pub(super) fn streams(&self) {
        self.is_streaming.set(true);
    }

    /// The bytes that were read behind the last request.
    pub(super) fn take_unread(&self) -> BytesMut {
        self.unread.take()
    }

    /// Whether actix-http has the whole request that it is to answer, and gets nothing of a further one.
    fn has_request(&self) -> bool {
        let framing = self.framing.get();
        let is_answered = framing.taken <= self.begun.get() && self.in_progress.get() == 0;
        framing.is_between() && self.owed.get() == 0 && !is_answered
    }

    /// What follows from the bytes that wait.
    fn step(&self) -> Step {
        let mut framing = self.framing.get();
        let step = framing.step(&self.unread.borrow());
        self.framing.set(framing);
        step
    }

    /// How many bytes were read and written.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// The connection becomes this when the answer in progress is written, as far as it comes.
    pub(super) fn hand_over(&self, connection: Part) {
        self.usage.take();
        self.handed_over.set(Some(connection));
    }

    /// What the connection becomes now. Called after each poll of the HTTP service, which writes what it has to write.
    pub(super) fn take_handed_over(&self) -> Option<Part> {
        if self.is_blocked.get() { None } else { self.handed_over.take() }
    }

    fn poll_until(&self, is_ready: bool, cx: &Context<'_>) -> Poll<()> {
        if is_ready {
            return Poll::Ready(());
        }
        // Reader and requests belong to one task: one waker is enough.
        self.waiting.set(Some(cx.waker().clone()));
        Poll::Pending
    }

    fn wake(&self) {
        if let Some(waiting) = self.waiting.take() {
            waiting.wake();
        }
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
        if result.is_ready() {
            self.wake();
        }
        result
    }

    fn count(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes as u64);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.in_progress.set(self.0.in_progress.get() - 1);
        if self.0.in_progress.get() == 0 {
            self.0.usage.end_request();
        }
        // The next request may be read.
        self.0.wake();
    }
}

impl<T> HttpStream<T> {
    /// `first` is the first byte of the next request, if it was read already.
    pub(super) fn new(socket: Rc<Socket<T>>, first: Option<u8>, usage: Arc<ConnectionUse>) -> Self {
        let unread = RefCell::new(first.into_iter().collect());
        let flow = HttpFlow { usage, unread, ..HttpFlow::default() };
        Self { socket, flow: Rc::new(flow) }
    }
}

impl<T: AsyncRead + Unpin> HttpStream<T> {
    /// Reads more behind the bytes that wait. Whether there was any.
    fn poll_more(&self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut unread = self.flow.unread.borrow_mut();
        unread.reserve(READ_BYTES_IN_TURN);
        let mut io = self.socket.io.borrow_mut();
        let bytes = ready!(pin!(io.read_buf(&mut *unread)).poll(cx))?;
        self.flow.count(bytes);
        Poll::Ready(Ok(bytes > 0))
    }

    /// Waits until there are bytes for actix-http. Whether there are any: none come at the end.
    fn poll_owed(&self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let flow = &self.flow;
        while flow.owed.get() == 0 {
            if flow.has_request() {
                // The end of the connection is noticed meanwhile.
                if flow.unread.borrow().is_empty() && !ready!(self.poll_more(cx))? {
                    return Poll::Ready(Ok(false));
                }
                ready!(flow.poll_until(false, cx));
            }
            let step = flow.step();
            match step {
                Step::Take(bytes) => flow.owed.set(bytes),
                Step::End => return Poll::Ready(Ok(false)),
                Step::TooLarge => {
                    let [head, header, end] = TOO_LARGE;
                    let refused = [head, &header.repeat(HEADERS_MAX + 1), end].concat();
                    *flow.unread.borrow_mut() = refused.as_bytes().into();
                }
                Step::More => {
                    if !ready!(self.poll_more(cx))? {
                        // actix-http judges what is there of a request.
                        flow.owed.set(flow.unread.borrow().len());
                        return Poll::Ready(Ok(flow.owed.get() > 0));
                    }
                }
            }
        }
        Poll::Ready(Ok(true))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for HttpStream<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let flow = &self.flow;
        ready!(flow.poll_until(!flow.is_blocked.get() && !flow.awaits_turn.get(), cx));
        let left = READ_BYTES_IN_TURN - flow.read_in_turn.take();
        if left == 0 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if ready!(self.poll_owed(cx))? {
            let bytes = flow.owed.get().min(left).min(buffer.remaining());
            let mut unread = flow.unread.borrow_mut();
            buffer.put_slice(&unread[..bytes]);
            unread.advance(bytes);
            flow.owed.set(flow.owed.get() - bytes);
            flow.read_in_turn.set(READ_BYTES_IN_TURN - left + bytes);
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for HttpStream<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut *self.socket.io.borrow_mut()).poll_write(cx, bytes);
        self.flow.written(written, |bytes| *bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut *self.socket.io.borrow_mut()).poll_write_vectored(cx, slices);
        self.flow.written(written, |bytes| *bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.io.borrow().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.socket.io.borrow_mut()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.socket.io.borrow_mut()).poll_shutdown(cx)
    }
}
