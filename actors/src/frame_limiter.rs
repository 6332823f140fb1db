//! The limiter between a WebSocket's bytes and its codec: counts frames and reads their lengths.
//!
//! The codec rejects an oversized frame only once all of it has arrived, and its stream reads
//! everything that the socket offers for each frame that it yields. A peer could fill the memory
//! with one endless frame or with many small ones. So the limiter rejects a frame by its head, and
//! passes no bytes while frames wait to be handled: then the socket's buffers fill, and TCP slows
//! the peer down.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use actix_web::error::PayloadError;
use bytes::Bytes;
use futures_util::{Stream, StreamExt};

/// The number of frames that the actor has handled.
pub(crate) type FramesHandled = Rc<Cell<u64>>;

/// The bytes of a connection, no faster than its actor handles them.
pub(crate) struct LimitedStream<S> {
    bytes: S,
    parser: FrameParser,
    handled: FramesHandled,
}

impl<S> LimitedStream<S> {
    pub(crate) fn new(bytes: S, frame_bytes_max: usize, handled: FramesHandled) -> Self {
        Self { bytes, parser: FrameParser::new(frame_bytes_max), handled }
    }
}

impl<S> Stream for LimitedStream<S>
where
    S: Stream<Item = Result<Bytes, PayloadError>> + Unpin,
{
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.parser.frames > self.handled.get() {
            // No waker is needed: the codec has a whole frame, and polls again after it.
            return Poll::Pending;
        }
        match ready!(self.bytes.poll_next_unpin(cx)) {
            // The peer closed TCP: the stream ends after what was received.
            Some(Err(PayloadError::Incomplete(_))) | None => Poll::Ready(None),
            Some(chunk) => Poll::Ready(Some(self.parser.check(chunk))),
        }
    }
}

/// Two bytes, a length of 8 bytes, a mask of 4 (RFC 6455 §5.2).
const HEAD_BYTES_MAX: usize = 14;

/// Parses the frames' heads of one connection.
#[derive(Debug)]
pub(crate) struct FrameParser {
    /// The bytes so far of the current frame's head.
    head: [u8; HEAD_BYTES_MAX],
    head_bytes: usize,
    /// Bytes that are missing of the current frame's payload.
    payload_bytes_left: usize,
    payload_bytes_max: usize,
    /// Frames that have arrived completely.
    frames: u64,
}

impl FrameParser {
    pub(crate) fn new(payload_bytes_max: usize) -> Self {
        let head = [0; HEAD_BYTES_MAX];
        Self { head, head_bytes: 0, payload_bytes_left: 0, payload_bytes_max, frames: 0 }
    }

    /// Passes a chunk, unless it contains the head of an oversized frame.
    pub(crate) fn check(
        &mut self,
        chunk: Result<Bytes, PayloadError>,
    ) -> Result<Bytes, PayloadError> {
        let chunk = chunk?;
        let mut rest = chunk.as_ref();
        while !rest.is_empty() {
            let skipped = self.payload_bytes_left.min(rest.len());
            self.payload_bytes_left -= skipped;
            self.frames += u64::from(skipped > 0 && self.payload_bytes_left == 0);
            rest = &rest[skipped..];
            if let Some((byte, after)) = rest.split_first() {
                self.read_head(*byte)?;
                rest = after;
            }
        }
        Ok(chunk)
    }

    fn read_head(&mut self, byte: u8) -> Result<(), PayloadError> {
        self.head[self.head_bytes] = byte;
        self.head_bytes += 1;
        let Some(length) = announced(&self.head[..self.head_bytes]) else { return Ok(()) };
        self.head_bytes = 0;
        match usize::try_from(length) {
            Ok(length) if length <= self.payload_bytes_max => {
                self.payload_bytes_left = length;
                self.frames += u64::from(length == 0);
                Ok(())
            }
            Ok(_) | Err(_) => Err(PayloadError::Overflow),
        }
    }
}

/// The payload length in a frame's head, once the head is complete.
fn announced(head: &[u8]) -> Option<u64> {
    let [_, second, rest @ ..] = head else { return None };
    let mask_bytes = if second & 0x80 == 0 { 0 } else { 4 };
    let (length, length_bytes) = match second & 0x7f {
        126 => (u64::from(u16::from_be_bytes(*rest.first_chunk()?)), 2),
        127 => (u64::from_be_bytes(*rest.first_chunk()?), 8),
        short => (u64::from(short), 0),
    };
    (rest.len() == length_bytes + mask_bytes).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The head of a masked frame whose payload has `length` bytes.
    fn head(length: u64) -> Vec<u8> {
        let (short, long) = match length {
            0..126 => (length as u8, Vec::new()),
            126..65_536 => (126, (length as u16).to_be_bytes().to_vec()),
            _ => (127, length.to_be_bytes().to_vec()),
        };
        [&[0x81, 0x80 | short], long.as_slice(), &[1, 2, 3, 4]].concat()
    }

    fn frame(length: usize) -> Vec<u8> {
        [head(length as u64), vec![0xff; length]].concat()
    }

    fn passes(parser: &mut FrameParser, bytes: &[u8]) -> bool {
        parser.check(Ok(Bytes::copy_from_slice(bytes))).is_ok_and(|passed| passed == bytes)
    }

    #[test]
    fn frames_up_to_the_limit_pass_however_they_are_split() {
        let stream: Vec<u8> =
            [0, 1, 125, 126, 127, 65_535, 65_536, 70_000, 5].into_iter().flat_map(frame).collect();
        for cut in [1, 2, 3, 7, 14, 100, 65_540, stream.len()] {
            let mut parser = FrameParser::new(70_000);
            assert!(stream.chunks(cut).all(|chunk| passes(&mut parser, chunk)), "{cut}");
        }
    }

    #[test]
    fn an_oversized_frame_is_rejected_by_its_head() {
        for length in [1001, 70_000, 1 << 40, u64::MAX] {
            let mut parser = FrameParser::new(1000);
            assert!(passes(&mut parser, &frame(1000)));
            let head = head(length);
            let (last, before) = head.split_last().unwrap();
            assert!(passes(&mut parser, before));
            assert!(!passes(&mut parser, &[*last]), "{length}");
        }
    }

    #[test]
    fn a_frame_without_a_mask_is_parsed_too() {
        let mut parser = FrameParser::new(2);
        assert!(passes(&mut parser, b"\x81\x02{}\x81\x02{}"));
        assert!(!passes(&mut parser, b"\x81\x03"));
    }

    #[test]
    fn an_error_of_the_connection_is_returned() {
        let error = FrameParser::new(2).check(Err(PayloadError::EncodingCorrupted));
        assert!(matches!(error, Err(PayloadError::EncodingCorrupted)));
    }

    /// One poll, with a waker that does nothing.
    fn poll<S: Stream + Unpin>(stream: &mut S) -> Poll<Option<S::Item>> {
        stream.poll_next_unpin(&mut Context::from_waker(std::task::Waker::noop()))
    }

    #[test]
    fn no_bytes_pass_while_frames_wait_to_be_handled() {
        let handled = FramesHandled::default();
        let two_and_a_half = [frame(3), frame(0), head(5)].concat();
        let chunks = [two_and_a_half, vec![0; 5], frame(1)];
        let chunks = chunks.map(|bytes| Ok::<_, PayloadError>(Bytes::from(bytes)));
        let mut limited =
            LimitedStream::new(futures_util::stream::iter(chunks), 10, Rc::clone(&handled));
        assert!(poll(&mut limited).is_ready());
        for done in 0..2 {
            handled.set(done);
            assert!(poll(&mut limited).is_pending());
        }
        handled.set(2);
        assert!(poll(&mut limited).is_ready(), "the rest of the third frame");
        assert!(poll(&mut limited).is_pending());
        handled.set(3);
        assert!(poll(&mut limited).is_ready());
        handled.set(4);
        assert!(matches!(poll(&mut limited), Poll::Ready(None)));
    }

    #[test]
    fn a_closed_connection_ends_the_stream_after_what_was_received() {
        let handled = FramesHandled::default();
        let closed = Err(PayloadError::Incomplete(None));
        let chunks = [Ok(Bytes::from(frame(2))), closed];
        let mut limited =
            LimitedStream::new(futures_util::stream::iter(chunks), 10, Rc::clone(&handled));
        assert!(poll(&mut limited).is_ready());
        assert!(poll(&mut limited).is_pending());
        handled.set(1);
        assert!(matches!(poll(&mut limited), Poll::Ready(None)));
    }
}
