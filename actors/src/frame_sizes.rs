//! The lengths that WebSocket frames announce, read before their payload is.
//!
//! The codec below refuses a frame that is too large only when it has come as a whole, and keeps
//! everything until then: a peer could fill the memory with one frame. So the bytes of a connection
//! pass by here first.

use actix_web::error::PayloadError;
use bytes::Bytes;

/// Two bytes, a length of 8 bytes, a mask of 4 (RFC 6455 §5.2).
const HEAD_BYTES_MAX: usize = 14;

/// Follows the frames of one connection.
#[derive(Debug)]
pub(crate) struct FrameSizes {
    /// The head of the frame that begins, as far as it has come.
    head: [u8; HEAD_BYTES_MAX],
    head_bytes: usize,
    /// What is still to come of a frame whose head was read.
    payload_bytes_left: usize,
    payload_bytes_max: usize,
}

impl FrameSizes {
    pub(crate) fn up_to(payload_bytes_max: usize) -> Self {
        let head = [0; HEAD_BYTES_MAX];
        Self { head, head_bytes: 0, payload_bytes_left: 0, payload_bytes_max }
    }

    /// Lets a chunk pass that announces no frame larger than allowed.
    pub(crate) fn check(
        &mut self,
        chunk: Result<Bytes, PayloadError>,
    ) -> Result<Bytes, PayloadError> {
        let chunk = chunk?;
        let mut rest = chunk.as_ref();
        while !rest.is_empty() {
            let skipped = self.payload_bytes_left.min(rest.len());
            self.payload_bytes_left -= skipped;
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
                Ok(())
            }
            Ok(_) | Err(_) => Err(PayloadError::Overflow),
        }
    }
}

/// The length in a frame's head, once the head is whole.
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

    /// A masked frame's head, which announces `length`.
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

    fn passes(sizes: &mut FrameSizes, bytes: &[u8]) -> bool {
        sizes.check(Ok(Bytes::copy_from_slice(bytes))).is_ok_and(|passed| passed == bytes)
    }

    #[test]
    fn frames_up_to_the_limit_pass_however_they_are_cut() {
        let stream: Vec<u8> =
            [0, 1, 125, 126, 127, 65_535, 65_536, 70_000, 5].into_iter().flat_map(frame).collect();
        for cut in [1, 2, 3, 7, 14, 100, 65_540, stream.len()] {
            let mut sizes = FrameSizes::up_to(70_000);
            assert!(stream.chunks(cut).all(|chunk| passes(&mut sizes, chunk)), "{cut}");
        }
    }

    #[test]
    fn a_frame_above_the_limit_is_refused_by_its_head() {
        for length in [1001, 70_000, 1 << 40, u64::MAX] {
            let mut sizes = FrameSizes::up_to(1000);
            assert!(passes(&mut sizes, &frame(1000)));
            let head = head(length);
            let (last, before) = head.split_last().unwrap();
            assert!(passes(&mut sizes, before));
            assert!(!passes(&mut sizes, &[*last]), "{length}");
        }
    }

    #[test]
    fn a_frame_without_a_mask_is_followed_too() {
        let mut sizes = FrameSizes::up_to(2);
        assert!(passes(&mut sizes, b"\x81\x02{}\x81\x02{}"));
        assert!(!passes(&mut sizes, b"\x81\x03"));
    }

    #[test]
    fn an_error_of_the_connection_is_handed_on() {
        let error = FrameSizes::up_to(2).check(Err(PayloadError::EncodingCorrupted));
        assert!(matches!(error, Err(PayloadError::EncodingCorrupted)));
    }
}
