//! A socket with TLS. Its bytes are received into the buffer of the thread, where they are decrypted.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::session::{RECORD_BYTES_MAX, Session};

/// Bytes of an answer that are encrypted at once. So many wait in TLS for a peer that does not read, beside those of its
/// connection.
const UNSENT_BYTES_MAX: usize = 8 * 1024;

/// Bytes that are received at once, if a reader has room for fewer: a handshake has some hundred. More than a reader has
/// room for would be kept for it.
const WANTED_BYTES_MIN: usize = 2048;

/// Bytes that are received beside what a reader has room for: the headers and ends of records.
const MARGIN_BYTES: usize = 256;

thread_local! {
    /// The received bytes of the connection that is polled.
    static RECEIVED: RefCell<Vec<u8>> = RefCell::new(vec![0; RECORD_BYTES_MAX]);
}

pub struct TlsStream<T> {
    io: T,
    session: Session,
}

impl<T: AsyncRead + AsyncWrite + Unpin> TlsStream<T> {
    /// Makes the handshake, to the last byte that it sends.
    pub async fn accept(config: Arc<ServerConfig>, io: T) -> io::Result<Self> {
        let session = Session::new(config).map_err(io::Error::other)?;
        let mut stream = Self { io, session };
        poll_fn(|cx| {
            loop {
                ready!(stream.poll_send(cx))?;
                if !stream.session.is_handshaking() {
                    return Poll::Ready(Ok::<_, io::Error>(()));
                }
                ready!(stream.poll_receive(cx, &mut ReadBuf::new(&mut [])))?;
            }
        })
        .await?;
        Ok(stream)
    }

    /// The protocol that the handshake selected (ALPN).
    pub fn protocol(&self) -> Option<&[u8]> {
        self.session.protocol()
    }

    /// Receives once. It is an error if nothing comes any more: the peer has not said that it ends.
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        read: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { io, session } = self;
        let received = RECEIVED.with_borrow_mut(|buffer| {
            let before = session.unfinished(buffer);
            let wanted =
                session.missing().max(read.remaining().max(WANTED_BYTES_MIN) + MARGIN_BYTES);
            let end = buffer.len().min(before + wanted);
            let mut free = ReadBuf::new(&mut buffer[before..end]);
            ready!(Pin::new(io).poll_read(cx, &mut free))?;
            let bytes = free.filled().len();
            if bytes == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            let received = session.receive(&mut buffer[..before + bytes], read);
            Poll::Ready(received.map_err(invalid))
        });
        // The alert about a fault, or an answer to a handshake message. What the socket does not take leaves later.
        let sent = self.poll_send(cx);
        ready!(received)?;
        match sent {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Sends what was encrypted before.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.session.unsent().is_empty() {
            match ready!(Pin::new(&mut self.io).poll_write(cx, self.session.unsent()))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.session.sent(sent),
            }
        }
        Poll::Ready(Ok(()))
    }
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsStream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        read: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = read.filled().len();
        while read.remaining() > 0 && !self.session.read(read) {
            ready!(self.poll_receive(cx, read))?;
            if read.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
        }
        match read.filled().len() == before && self.session.is_broken() {
            true => Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
            false => Poll::Ready(Ok(())),
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsStream<T> {
    /// What was encrypted before leaves first, so that a peer that does not read is noticed as it is without TLS.
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_send(cx))?;
        let (now, _) = bytes.split_at(bytes.len().min(UNSENT_BYTES_MAX));
        self.session.encrypt(now).map_err(invalid)?;
        if let Poll::Ready(Err(error)) = self.poll_send(cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(now.len()))
    }

    /// The slices share records.
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut filled = slices.iter().filter(|slice| !slice.is_empty());
        let first = filled.next().map(|slice| &**slice).unwrap_or_default();
        let mut joined = Vec::new();
        for slice in filled {
            if joined.is_empty() {
                joined.extend_from_slice(first);
            }
            let room = UNSENT_BYTES_MAX.saturating_sub(joined.len());
            joined.extend_from_slice(&slice[..slice.len().min(room)]);
        }
        self.poll_write(cx, if joined.is_empty() { first } else { &joined })
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.io).poll_flush(cx)
    }

    /// Ends TLS with its alert, and the socket with the end of TCP.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.session.is_broken() {
            self.session.end().map_err(invalid)?;
        }
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
