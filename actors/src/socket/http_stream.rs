//! A connection's bytes while it speaks HTTP: a peer that does not read its answers is not read either.
//!
//! actix-http reads and answers pipelined requests whether their answers leave or not, and polls without an end while
//! its read buffer is full. So each request waits for its turn ([`HttpFlow::turn`]): until others had theirs, and until
//! the answers before it were taken. Meanwhile [`HttpStream`] reads nothing. [`HttpFlow`] also counts bytes, which shows
//! a connection that is polled and makes no progress.

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use actix_http::header::{CONTENT_LENGTH, HeaderMap, TRANSFER_ENCODING};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop::consume_budget;

use super::framing::{Framing, HEADERS_MAX, HeadTooLarge};
use super::io::Socket;
use super::taken_socket::Part;
use super::usage::ConnectionUse;

/// Bytes that are read before the requests in them are answered: actix-http decodes all of them at once, into some KiB
/// for each. A larger body takes several turns.
const READ_BYTES_IN_TURN: usize = 8 * 1024;

/// A line that ends a header anywhere in it. With more lines than actix-http takes, it answers 431.
const HEADER_LINE: &[u8] = b"a:\r\n";

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
    /// Whether bytes were read that may be the beginning of a further request.
    has_unbegun: Cell<bool>,
    /// Bytes that were read, less those of answered requests: 0 if actix-http holds none. Negative while the rest of a
    /// body is to come. It stays above 0 after a request of unknown length.
    unclaimed: Cell<i64>,
    /// The head of the next request, if it was read whole and behind nothing else.
    head_bytes: Cell<Option<usize>>,
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
    /// A byte that was read before, and comes first.
    first: Option<u8>,
    framing: Framing,
    /// Whether a head was too large. Nothing behind it is a request.
    has_ended: bool,
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
        self.usage.begin_request();
        self.has_unbegun.set(false);
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
        let next = match (self.has_unbegun.get(), self.unclaimed.get()) {
            (true, _) => NextRequest::Begun,
            (false, 0) => NextRequest::Absent,
            (false, _) => NextRequest::Unknown,
        };
        Some((self.begun.get(), next))
    }

    /// The length of the request that begins now, head and body. Unknown if it was not read apart from the request
    /// before it, its head came in parts, or its body is chunked.
    pub(super) fn take_request_bytes(&self, headers: &HeaderMap) -> Option<i64> {
        let head = self.head_bytes.take()?;
        if headers.contains_key(TRANSFER_ENCODING) {
            return None;
        }
        let body: u32 = match headers.get(CONTENT_LENGTH) {
            Some(length) => length.to_str().ok()?.parse().ok()?,
            None => 0,
        };
        Some(head as i64 + i64::from(body))
    }

    /// Counts a request of this length as answered.
    pub(super) fn claim(&self, bytes: Option<i64>) {
        self.unclaimed.set(self.unclaimed.get() - bytes.unwrap_or_default());
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

    /// `head` is the length of the head with which the bytes begin, if it is whole.
    fn read(&self, bytes: &[u8], head: Option<usize>) {
        let unclaimed = self.unclaimed.get();
        if unclaimed == 0 {
            self.head_bytes.set(head);
        }
        self.unclaimed.set(unclaimed + bytes.len() as i64);
        self.has_unbegun.set(self.in_progress.get() == 0 && !bytes.is_empty());
        self.count(bytes.len());
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
    }
}

impl<T> HttpStream<T> {
    /// `first` is the first byte of the next request, if it was read already.
    pub(super) fn new(socket: Rc<Socket<T>>, first: Option<u8>, usage: Arc<ConnectionUse>) -> Self {
        let (flow, framing) = (HttpFlow { usage, ..HttpFlow::default() }, Framing::default());
        Self { socket, flow: Rc::new(flow), first, framing, has_ended: false }
    }

    /// Ends the connection after a head that is too large. Gives actix-http what it refuses in place of the rest, and
    /// nothing more.
    fn refuse_head(&mut self, buffer: &mut ReadBuf<'_>) -> io::Result<()> {
        self.has_ended = true;
        let lines = HEADER_LINE.repeat(HEADERS_MAX + 1);
        if buffer.remaining() < lines.len() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        buffer.put_slice(&lines);
        self.flow.read(&lines, None);
        Ok(())
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for HttpStream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let flow = Rc::clone(&self.flow);
        if self.has_ended {
            return Poll::Ready(Ok(()));
        }
        ready!(flow.poll_until(!flow.is_blocked.get() && !flow.awaits_turn.get(), cx));
        let left = READ_BYTES_IN_TURN - flow.read_in_turn.take();
        if left == 0 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(left.min(buffer.remaining())));
        let first = self.first.take();
        part.put_slice(first.as_slice());
        let read = self.socket.poll_read(cx, &mut part);
        if first.is_none() {
            ready!(read)?;
        }
        let bytes = part.filled().len();
        match self.framing.read(part.filled()) {
            Ok(head) => flow.read(part.filled(), head),
            Err(HeadTooLarge) => return Poll::Ready(self.refuse_head(buffer)),
        }
        buffer.advance(bytes);
        flow.read_in_turn.set(READ_BYTES_IN_TURN - left + bytes);
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
