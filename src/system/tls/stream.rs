//! A connection of a port, with TLS or without.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
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
}

impl Stream {
    pub fn plain(stream: TcpStream) -> Self {
        Self { io: Either::Left(stream), has_read: false }
    }

    pub fn tls(stream: TlsStream<TcpStream>) -> Self {
        Self { io: Either::Right(Box::new(stream)), has_read: false }
    }

    /// Whether the handshake chose HTTP/2.
    pub fn is_http2(&self) -> bool {
        match &self.io {
            Either::Left(_) => false,
            Either::Right(tls) => tls.protocol() == Some(b"h2"),
        }
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
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
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
