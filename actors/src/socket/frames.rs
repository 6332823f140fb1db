//! The frames of a connection, read from its socket one after the other.
//!
//! No more is read than the actor handles, so TCP slows a fast peer down. A frame is admitted by its head: an oversized
//! one is rejected before its payload is read, and one above the agent's rate waits. Between frames there is no buffer.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use actix_codec::Decoder;
use actix_http::ws::{Codec, Frame, ProtocolError};
use bytes::BytesMut;
use futures_util::Stream;
use state_machine::token_bucket::TokenBucket;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::io::Socket;
use crate::frame_limits::FrameLimits;

/// Bytes of one read.
const READ_BYTES_MAX: usize = 16 * 1024;

/// Frames after which it is the turn of other connections of the thread.
const FRAMES_IN_TURN: u32 = 32;

/// A frame counts once, and once more for each such part of its payload.
const COUNTED_BYTES: u64 = 1024;

thread_local! {
    /// Where each read goes. What is left of it after the last whole frame is copied out.
    static READ_BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES_MAX]);
}

pub(super) struct FrameStream<T> {
    socket: Rc<Socket<T>>,
    limits: Arc<FrameLimits>,
    codec: Codec,
    /// What was read and not decoded.
    bytes: BytesMut,
    /// Whether the frame that begins in `bytes` was admitted.
    is_admitted: bool,
    bucket: TokenBucket,
    /// Until the bucket has enough for the next frame.
    wait: Option<Pin<Box<Sleep>>>,
    /// Frames since it was the turn of others.
    in_turn: u32,
}

impl<T: AsyncRead + Unpin> FrameStream<T> {
    /// Continues after `bytes`, which were read with the handshake.
    pub(super) fn new(socket: Rc<Socket<T>>, limits: Arc<FrameLimits>, bytes: BytesMut) -> Self {
        let (codec, bucket) = (Codec::new().max_size(limits.bytes_max), limits.rate.bucket());
        Self { socket, limits, codec, bytes, is_admitted: false, bucket, wait: None, in_turn: 0 }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, ProtocolError>>> {
        loop {
            ready!(self.poll_admitted(cx))?;
            if let Some(frame) = self.codec.decode(&mut self.bytes)? {
                self.is_admitted = false;
                if self.bytes.is_empty() {
                    self.bytes = BytesMut::new();
                }
                return Poll::Ready(Some(Ok(frame)));
            }
            // A peer that closed its end, or was cut off, has sent what came before.
            if !ready!(self.poll_read(cx)).is_ok_and(|bytes| bytes > 0) {
                return Poll::Ready(None);
            }
        }
    }

    /// Admits the next frame as soon as its head has arrived.
    fn poll_admitted(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ProtocolError>> {
        let Some(length) = payload_length(&self.bytes).filter(|_| !self.is_admitted) else {
            return Poll::Ready(Ok(()));
        };
        if length > self.limits.bytes_max as u64 {
            return Poll::Ready(Err(ProtocolError::Overflow));
        }
        loop {
            if let Some(wait) = &mut self.wait {
                ready!(wait.as_mut().poll(cx));
                self.wait = None;
            }
            let (count, now) = (1 + length / COUNTED_BYTES, self.limits.clock.now());
            match self.bucket.try_acquire_many(&self.limits.rate, count, now) {
                Ok(()) => break self.is_admitted = true,
                Err(wait) => {
                    self.limits.count_delayed(now);
                    self.wait = Some(Box::pin(sleep(Duration::from_millis(wait.0))));
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads what there is, and returns how much.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        READ_BUFFER.with_borrow_mut(|buffer| {
            let mut read = ReadBuf::new(buffer);
            ready!(self.socket.poll_read(cx, &mut read))?;
            self.bytes.extend_from_slice(read.filled());
            Poll::Ready(Ok(read.filled().len()))
        })
    }
}

impl<T: AsyncRead + Unpin> Stream for FrameStream<T> {
    /// A frame, or why it is invalid.
    type Item = Result<Frame, ProtocolError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.in_turn == FRAMES_IN_TURN {
            self.in_turn = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let frame = self.poll_frame(cx);
        self.in_turn = if frame.is_ready() { self.in_turn + 1 } else { 0 };
        frame
    }
}

/// The payload length in a frame's head, once that has arrived (RFC 6455 §5.2).
fn payload_length(frame: &[u8]) -> Option<u64> {
    let [_, second, rest @ ..] = frame else { return None };
    match second & 0x7f {
        126 => rest.first_chunk().map(|length| u16::from_be_bytes(*length).into()),
        127 => rest.first_chunk().map(|length| u64::from_be_bytes(*length)),
        short => Some(short.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::task::Waker;

    use bytes::Bytes;
    use slog::{Discard, Logger, o};
    use state_machine::Time;

    use super::super::websocket::{WebSocket, received};
    use super::*;
    use crate::clock::Clock;
    use crate::fuzz::fuzz;

    const BYTES_MAX: usize = 200;

    /// How many bytes arrive at once.
    const CHUNK_BYTES: usize = 50;

    /// Two bytes, a length of 8, a mask of 4.
    const HEAD_BYTES_MAX: usize = 14;

    /// Two texts, one in three parts with a ping between, a pong, and a close.
    const STREAM: &[u8] =
        b"\x81\x94\x01\x02\x03\x04z fbrqbceWzrd!>#ig&|\x01\x81\0\0\0\0{\x89\x80\0\0\0\0\
        \x00\x80\0\0\0\0\x80\x81\0\0\0\0}\x8a\x81\0\0\0\0a\x88\x82\0\0\0\0\x03\xe8";

    /// Bytes that arrive in chunks. More of them come later while it is open.
    struct Arriving {
        bytes: Bytes,
        is_open: bool,
        read: Rc<Cell<usize>>,
    }

    impl AsyncRead for Arriving {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if self.bytes.is_empty() && self.is_open {
                return Poll::Pending;
            }
            let bytes = self.bytes.len().min(CHUNK_BYTES);
            buffer.put_slice(&self.bytes.split_to(bytes));
            self.read.set(self.read.get() + bytes);
            Poll::Ready(Ok(()))
        }
    }

    fn frames(bytes: &[u8], is_open: bool, per_second_max: usize) -> FrameStream<Arriving> {
        let (bytes, read) = (Bytes::copy_from_slice(bytes), Rc::default());
        let (clock, log) = (Clock::starting_at(Time(1_000_000)), Logger::root(Discard, o!()));
        let limits = FrameLimits::new(BYTES_MAX, per_second_max, clock, log);
        let arriving = Arriving { bytes, is_open, read };
        let socket = Rc::new(Socket::new(arriving));
        FrameStream::new(socket, Arc::new(limits), BytesMut::new())
    }

    fn bytes_read(frames: &FrameStream<Arriving>) -> usize {
        frames.socket.io.borrow().read.get()
    }

    /// A masked text frame.
    fn text(length: usize) -> Vec<u8> {
        let head = match length {
            0..126 => vec![0x81, 0x80 | length as u8],
            _ => [&[0x81, 0xfe], (length as u16).to_be_bytes().as_slice()].concat(),
        };
        [head, vec![0; 4], vec![b' '; length]].concat()
    }

    fn poll(frames: &mut FrameStream<Arriving>) -> Poll<Option<Result<Frame, ProtocolError>>> {
        Pin::new(frames).poll_next(&mut Context::from_waker(Waker::noop()))
    }

    fn length(frame: Poll<Option<Result<Frame, ProtocolError>>>) -> usize {
        match frame {
            Poll::Ready(Some(Ok(Frame::Text(text)))) => text.len(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn no_hostile_bytes_panic_or_are_kept_beyond_the_limit() {
        fuzz("websocket_frames", &[STREAM, &text(BYTES_MAX), &text(BYTES_MAX + 15)], |bytes| {
            let mut socket = WebSocket { socket: None, parts: None, has_subprotocol: true };
            let mut frames = frames(bytes, false, 0);
            loop {
                match poll(&mut frames) {
                    Poll::Ready(Some(Ok(Frame::Continuation(part)))) => {
                        drop(socket.take_part(part, BYTES_MAX));
                    }
                    Poll::Ready(Some(Ok(Frame::Text(text)))) => drop(received(&text)),
                    Poll::Ready(Some(Ok(_))) | Poll::Pending => {}
                    Poll::Ready(Some(Err(_)) | None) => break,
                }
                assert!(frames.bytes.len() < HEAD_BYTES_MAX + BYTES_MAX + CHUNK_BYTES);
                assert!(socket.parts.as_ref().is_none_or(|parts| parts.0.len() <= BYTES_MAX));
            }
        });
    }

    #[test]
    fn nothing_is_read_before_the_frames_that_are_there_were_taken() {
        let mut frames = frames(&text(1).repeat(100), true, 0);
        assert_eq!(length(poll(&mut frames)), 1);
        assert_eq!(bytes_read(&frames), CHUNK_BYTES);
    }

    #[test]
    fn an_oversized_frame_is_rejected_by_its_head() {
        for head in [b"\x81\xfe\0\xc9".as_slice(), b"\x81\xff\0\0\x01\0\0\0\0\0"] {
            let (last, before) = head.split_last().unwrap();
            assert!(poll(&mut frames(before, true, 0)).is_pending());
            let rejected = poll(&mut frames(&[before, &[*last]].concat(), true, 0));
            assert!(
                matches!(rejected, Poll::Ready(Some(Err(ProtocolError::Overflow)))),
                "{head:?}"
            );
        }
        assert_eq!(length(poll(&mut frames(&text(BYTES_MAX), true, 0))), BYTES_MAX);
    }

    #[test]
    fn others_have_their_turn_after_some_frames() {
        let mut frames = frames(&text(0).repeat(100), true, 0);
        for frames_in_turn in [32, 32, 32, 4] {
            for _ in 0..frames_in_turn {
                assert_eq!(length(poll(&mut frames)), 0);
            }
            assert!(poll(&mut frames).is_pending());
        }
    }

    #[test]
    fn a_whole_frame_leaves_no_buffer_behind() {
        let mut frames = frames(&text(150), true, 0);
        assert_eq!(length(poll(&mut frames)), 150);
        assert_eq!(frames.bytes.capacity(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn frames_above_the_rate_wait_and_are_not_read() {
        let mut frames = frames(&text(0).repeat(30), true, 10);
        for _ in 0..10 {
            assert_eq!(length(poll(&mut frames)), 0);
        }
        assert!(poll(&mut frames).is_pending());
        assert_eq!((bytes_read(&frames), frames.limits.delayed()), (2 * CHUNK_BYTES, 1));
        tokio::time::advance(Duration::from_millis(99)).await;
        assert!(poll(&mut frames).is_pending());
        tokio::time::advance(Duration::from_millis(2)).await;
        assert_eq!(length(poll(&mut frames)), 0);
        assert!(poll(&mut frames).is_pending());
    }
}
