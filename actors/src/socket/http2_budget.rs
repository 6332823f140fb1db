//! The work that a peer may cause over HTTP/2 beside requests: frames of all kinds share a budget.
//!
//! h2 answers pings and settings, decodes headers and forgets streams as fast as a peer sends. So [`Budgeted`] follows the
//! frames in the bytes that h2 reads, and charges each. A request that reaches the routes is charged by other limits. It
//! gives back what its frames cost, unless its headers are large, and the bytes of answers give back their window updates.
//! Above the budget h2 gets a frame for which it ends the connection with ENHANCE_YOUR_CALM, and nothing more.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use state_machine::token_bucket::{Rate, TokenBucket};
use state_machine::{Span, Time};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::usage::ConnectionUse;

/// Units of work of a connection in a second. A frame without headers costs one.
const UNITS_PER_SECOND: u64 = 500;

/// Units at once: as many requests as a connection has streams, before the first of them is answered.
const UNITS_AT_ONCE: u64 = 1500;

/// Units of a frame with headers, and of each 512 bytes of it. Their decoding costs the most.
const HEADERS_UNITS: u64 = 8;

/// What a request gives back: its headers, and some frames as clients send them beside it.
const REQUEST_UNITS: u64 = 16;
const CREDIT_UNITS_MAX: u64 = 2048;

/// Bytes of an answer that give a unit back: some clients return the window of each 4 KiB twice, of a stream and of its connection.
const SENT_BYTES_OF_UNIT: u64 = 1024;

/// Headers of a request, and their bytes, above which it gives nothing back. A push has fewer.
const HEADERS_MAX: usize = 64;
const HEADERS_BYTES_MAX: usize = 4096;

/// Bytes of a body below which a frame of it counts.
const DATA_BYTES_MIN: u64 = 1024;

const PREFACE_BYTES: usize = 24;
const FRAME_HEADER_BYTES: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const CONTINUATION: u8 = 9;

/// `accept-charset` without a value, by its number in the static table of HPACK (RFC 7541), which counts as 46 bytes.
const SMALLEST_FIELD: u8 = 0x80 | 15;

/// The budget of a connection, which its stream and its requests share.
pub(super) struct Budget {
    rate: Rate,
    bucket: Cell<TokenBucket>,
    /// Units that requests and answers gave back.
    credit: Cell<u64>,
    /// Bytes of answers since the last unit that they gave back.
    sent: Cell<u64>,
    is_over: Cell<bool>,
    began: Instant,
}

/// The stream of a connection.
pub(super) struct Budgeted<T> {
    io: T,
    frames: Frames,
    budget: Rc<Budget>,
    usage: Arc<ConnectionUse>,
    /// Bytes of the headers of a request, decoded, above which h2 refuses it.
    list_bytes_max: u32,
    /// What h2 gets in place of further frames.
    last: Option<Bytes>,
}

/// Follows the frames in the bytes of a peer.
struct Frames {
    preface_left: usize,
    header: [u8; FRAME_HEADER_BYTES],
    /// How much of the header was read.
    filled: usize,
    payload_left: usize,
}

impl Budget {
    pub(super) fn new() -> Rc<Self> {
        let rate = Rate::new(UNITS_PER_SECOND, Span::from_secs(1), UNITS_AT_ONCE);
        Rc::new(Self {
            rate,
            bucket: Cell::new(rate.bucket()),
            credit: Cell::new(0),
            sent: Cell::new(0),
            is_over: Cell::new(false),
            began: Instant::now(),
        })
    }

    /// A request with so many headers, of so many bytes, has reached the routes.
    pub(super) fn requested(&self, headers: usize, bytes: usize) {
        if headers <= HEADERS_MAX && bytes <= HEADERS_BYTES_MAX {
            self.give_back(REQUEST_UNITS);
        }
    }

    /// So many bytes were sent.
    fn sent(&self, bytes: usize) {
        let sent = self.sent.get() + bytes as u64;
        self.sent.set(sent % SENT_BYTES_OF_UNIT);
        self.give_back(sent / SENT_BYTES_OF_UNIT);
    }

    fn give_back(&self, units: u64) {
        self.credit.set((self.credit.get() + units).min(CREDIT_UNITS_MAX));
    }

    fn charge(&self, units: u64) {
        let of_credit = units.min(self.credit.get());
        self.credit.set(self.credit.get() - of_credit);
        if units == of_credit {
            return;
        }
        let now = Time(self.began.elapsed().as_millis().try_into().unwrap_or(u64::MAX));
        let mut bucket = self.bucket.get();
        let acquired = bucket.try_acquire_many(&self.rate, units - of_credit, now);
        self.bucket.set(bucket);
        self.is_over.set(self.is_over.get() || acquired.is_err());
    }
}

impl Frames {
    fn new() -> Self {
        let header = [0; FRAME_HEADER_BYTES];
        Self { preface_left: PREFACE_BYTES, header, filled: 0, payload_left: 0 }
    }

    /// Charges the frames that begin in these bytes. Returns how many of the bytes come before the first frame above the
    /// budget, if one is.
    fn read(&mut self, bytes: &[u8], budget: &Budget) -> Option<usize> {
        let mut at = 0;
        loop {
            if self.preface_left + self.filled + self.payload_left == 0 && budget.is_over.get() {
                return Some(at);
            }
            if at == bytes.len() {
                return None;
            }
            let rest = bytes.len() - at;
            let (left, is_header) = match (self.preface_left, self.payload_left) {
                (0, 0) => (FRAME_HEADER_BYTES - self.filled, true),
                (0, _) => (self.payload_left, false),
                (left, _) => (left, false),
            };
            let taken = left.min(rest);
            if is_header {
                let end = self.filled + taken;
                self.header[self.filled..end].copy_from_slice(&bytes[at..at + taken]);
                self.filled = end;
                if end == FRAME_HEADER_BYTES {
                    self.begin(budget);
                }
            } else if self.preface_left > 0 {
                self.preface_left -= taken;
            } else {
                self.payload_left -= taken;
            }
            at += taken;
        }
    }

    fn begin(&mut self, budget: &Budget) {
        let [high, middle, low, kind, ..] = self.header;
        let length = u32::from_be_bytes([0, high, middle, low]);
        (self.payload_left, self.filled) = (length as usize, 0);
        budget.charge(cost(kind, length.into()));
    }
}

/// The units of a frame.
fn cost(kind: u8, length: u64) -> u64 {
    match kind {
        // The window bounds the bytes.
        DATA => u64::from(length < DATA_BYTES_MIN),
        HEADERS | CONTINUATION => HEADERS_UNITS + length / 512,
        // Of 6 bytes each.
        SETTINGS => 1 + length / 64,
        _ => 1 + length / 1024,
    }
}

/// A frame with more than four times this header list. For it h2 ends a connection with ENHANCE_YOUR_CALM;
/// of an earlier frame that it interrupts with PROTOCOL_ERROR.
fn last_frame(list_bytes_max: u32) -> Bytes {
    let fields = 4 * list_bytes_max as usize / 46 + 1;
    let [_, high, middle, low] = (fields as u32).to_be_bytes();
    let end_headers_and_stream = 0x5;
    let head = [high, middle, low, HEADERS, end_headers_and_stream, 0, 0, 0, 1];
    [&head[..], &vec![SMALLEST_FIELD; fields]].concat().into()
}

impl<T> Budgeted<T> {
    pub(super) fn new(
        io: T,
        budget: Rc<Budget>,
        usage: Arc<ConnectionUse>,
        list_bytes_max: u32,
    ) -> Self {
        Self { io, frames: Frames::new(), budget, usage, list_bytes_max, last: None }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Budgeted<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.last.is_none() {
            let before = buffer.filled().len();
            ready!(Pin::new(&mut this.io).poll_read(cx, buffer))?;
            let Some(passed) = this.frames.read(&buffer.filled()[before..], &this.budget) else {
                return Poll::Ready(Ok(()));
            };
            buffer.set_filled(before + passed);
            this.usage.overspend();
            this.last = Some(last_frame(this.list_bytes_max));
            if passed > 0 {
                return Poll::Ready(Ok(()));
            }
        }
        // At its end the peer seems to have closed its side.
        if let Some(last) = &mut this.last {
            buffer.put_slice(&last.split_to(last.len().min(buffer.remaining())));
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Budgeted<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write(cx, bytes))?;
        self.budget.sent(written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write_vectored(cx, slices))?;
        self.budget.sent(written);
        Poll::Ready(Ok(written))
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

#[cfg(test)]
mod tests {
    use tokio::time::{Duration, advance};

    use super::*;

    fn frame(kind: u8, payload: usize) -> Vec<u8> {
        let [_, high, middle, low] = (payload as u32).to_be_bytes();
        [&[high, middle, low, kind, 0, 0, 0, 0, 0][..], &vec![7; payload]].concat()
    }

    /// How many frames of this kind pass a new budget.
    fn passed(kind: u8, payload: usize) -> usize {
        let (budget, mut frames) = (Budget::new(), Frames::new());
        frames.read(&[0; PREFACE_BYTES], &budget);
        let frame = frame(kind, payload);
        (0..100_000).position(|_| frames.read(&frame, &budget).is_some()).unwrap_or(100_000)
    }

    #[tokio::test(start_paused = true)]
    async fn frames_of_each_kind_share_the_budget() {
        for (kind, payload, expected) in [
            (DATA, 0, 1500),
            (DATA, 1, 1500),
            (DATA, 1024, 100_000),
            (HEADERS, 100, 187),
            (HEADERS, 16 * 1024, 37),
            (CONTINUATION, 0, 187),
            (SETTINGS, 0, 1500),
            (SETTINGS, 60 * 64, 24),
            // Priority, reset, ping, go away, window update, and an unknown kind.
            (2, 5, 1500),
            (3, 4, 1500),
            (6, 8, 1500),
            (7, 8, 1500),
            (8, 4, 1500),
            (200, 0, 1500),
        ] {
            // The frame above the budget passes, and the one behind it does not.
            assert_eq!(passed(kind, payload), expected, "{kind} {payload}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_budget_is_refilled_by_time_and_by_requests_with_few_headers() {
        let budget = Budget::new();
        budget.charge(1500);
        assert!(!budget.is_over.get());
        advance(Duration::from_millis(500)).await;
        budget.charge(250);
        for (headers, bytes, credit) in [(64, 4096, 16), (65, 100, 0), (1, 4097, 0)] {
            budget.requested(headers, bytes);
            assert_eq!(budget.credit.replace(0), credit, "{headers} {bytes}");
        }
        for _ in 0..1000 {
            budget.requested(10, 500);
            budget.charge(16);
        }
        assert!(!budget.is_over.get());
        budget.charge(1);
        assert!(budget.is_over.get());
    }

    #[tokio::test(start_paused = true)]
    async fn a_download_gives_back_what_its_window_updates_cost() {
        let (budget, mut frames) = (Budget::new(), Frames::new());
        frames.read(&[0; PREFACE_BYTES], &budget);
        let update = frame(8, 4);
        for part in 0..100_000 {
            budget.sent(4096);
            // Of the stream and of the connection.
            for _ in 0..2 {
                assert_eq!(frames.read(&update, &budget), None, "{part}");
            }
        }
        // The answers to pings are small.
        let ping = frame(6, 8);
        let pings = (0..100_000).position(|_| {
            budget.sent(ping.len());
            frames.read(&ping, &budget).is_some()
        });
        assert!(pings.is_some_and(|pings| pings < 4000), "{pings:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_behind_the_budget_passes_wherever_the_bytes_are_parted() {
        let ping = frame(6, 8);
        let bytes = [&vec![0; PREFACE_BYTES][..], &ping.repeat(1500), &frame(HEADERS, 9)].concat();
        let more = [&bytes[..], &ping.repeat(3)].concat();
        for part in [1, 2, 8, 9, 10, 17, 18, 100, more.len()] {
            let (budget, mut frames) = (Budget::new(), Frames::new());
            let mut passed = 0;
            for part in more.chunks(part) {
                match frames.read(part, &budget) {
                    None => passed += part.len(),
                    Some(before) => {
                        passed += before;
                        break;
                    }
                }
            }
            assert_eq!(passed, bytes.len(), "in parts of {part}");
        }
    }
}
