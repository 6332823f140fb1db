//! The socket of a connection.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use actix_codec::Encoder;
use actix_http::ws::{Codec, Message};
use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A socket that one task reads in one place and writes in another.
pub(super) struct Socket<T: ?Sized> {
    /// What the socket has not taken yet. It has no buffer while it is empty.
    unsent: Cell<BytesMut>,
    pub(super) io: RefCell<T>,
}

impl<T> Socket<T> {
    pub(super) fn new(io: T) -> Self {
        Self { unsent: Cell::default(), io: RefCell::new(io) }
    }

    pub(super) fn into_parts(self) -> (T, BytesMut) {
        (self.io.into_inner(), self.unsent.into_inner())
    }
}

impl<T: ?Sized> Socket<T> {
    /// Leaves bytes to be written by the connection.
    pub(super) fn add(&self, bytes: &[u8]) {
        let mut unsent = self.unsent.take();
        unsent.extend_from_slice(bytes);
        self.unsent.set(unsent);
    }

    /// Leaves a frame to be written by the connection, whose task polls what sends it.
    pub(super) fn send(&self, message: Message) {
        let mut unsent = self.unsent.take();
        // A frame of the server that is not continued is always valid.
        let _ = Codec::new().encode(message, &mut unsent);
        self.unsent.set(unsent);
    }
}

impl<T: AsyncRead + Unpin> Socket<T> {
    pub(super) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        read: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.io.borrow_mut()).poll_read(cx, read)
    }
}

impl<T: AsyncWrite + Unpin> Socket<T> {
    /// Writes what the socket takes. Returns how many bytes are left; then the task is woken when it takes more.
    pub(super) fn write(&self, cx: &mut Context<'_>) -> io::Result<usize> {
        let mut unsent = self.unsent.take();
        while !unsent.is_empty() {
            match Pin::new(&mut *self.io.borrow_mut()).poll_write(cx, &unsent)? {
                Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(written) => unsent.advance(written),
                Poll::Pending => {
                    let left = unsent.len();
                    self.unsent.set(unsent);
                    return Ok(left);
                }
            }
        }
        // TLS may hold what it has encrypted. Then the task is woken, and this is called again.
        let _ = Pin::new(&mut *self.io.borrow_mut()).poll_flush(cx)?;
        Ok(0)
    }
}
