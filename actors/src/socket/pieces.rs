//! A large body in pieces: actix-http copies what a body gives it as one, and keeps that for a peer that does not read.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use actix_http::body::{BodySize, BoxBody, MessageBody};
use bytes::Bytes;

/// Bytes of a piece, and bytes of answers behind which no further piece waits for the peer.
pub(super) const PIECE_BYTES: usize = 4 * 1024;

struct Pieces {
    body: BoxBody,
    rest: Bytes,
}

/// The body, in pieces if it is larger than one.
pub(super) fn in_pieces(body: BoxBody) -> BoxBody {
    match body.size() {
        BodySize::Sized(bytes) if bytes > PIECE_BYTES as u64 => {
            BoxBody::new(Pieces { body, rest: Bytes::new() })
        }
        _ => body,
    }
}

impl MessageBody for Pieces {
    type Error = Box<dyn std::error::Error>;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_next(cx)) {
                Some(Ok(bytes)) => self.rest = bytes,
                ended => return Poll::Ready(ended),
            }
        }
        let bytes = self.rest.len().min(PIECE_BYTES);
        Poll::Ready(Some(Ok(self.rest.split_to(bytes))))
    }
}
