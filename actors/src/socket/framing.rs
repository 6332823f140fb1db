//! Where the requests in the bytes of a connection begin and end, and how long their heads are.
//!
//! actix-http takes heads of up to 128 KiB, and panics on a header name of 64 KiB: the `http` crate has no such names.

use std::mem::{MaybeUninit, take};

use actix_http::header::{CONTENT_LENGTH, TRANSFER_ENCODING, UPGRADE};
use httparse::Status;

/// Bytes of a head of which more is to come, and of the name of a header.
const HEAD_BYTES_MAX: usize = 64 * 1024 - 1;

/// Headers of a request, as many as actix-http takes.
pub(super) const HEADERS_MAX: usize = 96;

/// The head of a request, or a name in it, is larger than [`HEAD_BYTES_MAX`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HeadTooLarge;

/// The part of a request that comes next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// A head, of which this was read.
    Head(Vec<u8>),
    /// So many bytes of a body.
    Body(u64),
    /// The size of a chunk, of which this was read. An extension behind it is skipped.
    ChunkSize { bytes: u64, is_in_extension: bool },
    /// So many bytes of a chunk, with the end of its line.
    Chunk(u64),
    /// Trailers, up to an empty line.
    Trailers { is_line_empty: bool },
    /// What actix-http does not read as a request: it is invalid, or follows an upgrade.
    Unknown,
}

impl Default for Framing {
    fn default() -> Self {
        Self::Head(Vec::new())
    }
}

impl Framing {
    /// Takes bytes that were read. Returns the length of the head with which they begin, if it is whole.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> Result<Option<usize>, HeadTooLarge> {
        let mut first = None;
        let is_first = *self == Self::default();
        let all = bytes.len();
        while !bytes.is_empty() {
            let was_first = is_first && bytes.len() == all;
            bytes = match self {
                Self::Head(_) => {
                    let (length, rest) = self.read_head(bytes)?;
                    first = if was_first { length } else { first };
                    rest
                }
                Self::Unknown => return Ok(first),
                _ => self.read_body(bytes),
            };
        }
        Ok(first)
    }

    /// Returns the length of the head, if it ends, and the bytes behind it.
    fn read_head<'a>(
        &mut self,
        bytes: &'a [u8],
    ) -> Result<(Option<usize>, &'a [u8]), HeadTooLarge> {
        let Self::Head(before) = self else { return Ok((None, bytes)) };
        let begun = before.len();
        let joined;
        let head = match begun {
            0 => bytes,
            _ => {
                joined = [before.as_slice(), bytes].concat();
                &joined
            }
        };
        let mut headers = [const { MaybeUninit::uninit() }; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut []);
        match request.parse_with_uninit_headers(head, &mut headers) {
            Ok(Status::Complete(_)) if request.headers.iter().any(has_long_name) => {
                *self = Self::Unknown;
                Err(HeadTooLarge)
            }
            Ok(Status::Complete(length)) => {
                *self = Self::behind(&request);
                Ok((Some(length), &bytes[length - begun..]))
            }
            Ok(Status::Partial) if head.len() > HEAD_BYTES_MAX => {
                *self = Self::Unknown;
                Err(HeadTooLarge)
            }
            Ok(Status::Partial) => {
                *self = Self::Head(head.to_vec());
                Ok((None, &[]))
            }
            Err(_) => {
                *self = Self::Unknown;
                Ok((None, &[]))
            }
        }
    }

    /// What follows a head.
    fn behind(request: &httparse::Request<'_, '_>) -> Self {
        let value = |name: &str| {
            let header =
                request.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
            header.map(|header| header.value.trim_ascii())
        };
        if value(UPGRADE.as_str()).is_some() || request.method == Some("CONNECT") {
            return Self::Unknown;
        }
        match (value(TRANSFER_ENCODING.as_str()), value(CONTENT_LENGTH.as_str())) {
            (None, None) => Self::default(),
            (None, Some(length)) => {
                let length = str::from_utf8(length).ok().and_then(|length| length.parse().ok());
                length.map_or(Self::Unknown, Self::of_body)
            }
            (Some(coding), None) if coding.eq_ignore_ascii_case(b"chunked") => Self::chunk_size(),
            (Some(_), _) => Self::Unknown,
        }
    }

    fn of_body(bytes: u64) -> Self {
        if bytes == 0 { Self::default() } else { Self::Body(bytes) }
    }

    fn chunk_size() -> Self {
        Self::ChunkSize { bytes: 0, is_in_extension: false }
    }

    /// Returns the bytes behind the part of a body with which these begin.
    fn read_body<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        if let Self::Body(left) | Self::Chunk(left) = self {
            let skipped = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
            *left -= skipped as u64;
            if *left == 0 {
                let is_chunk = matches!(self, Self::Chunk(_));
                *self = if is_chunk { Self::chunk_size() } else { Self::default() };
            }
            return &bytes[skipped..];
        }
        *self = take(self).after(bytes[0]);
        &bytes[1..]
    }

    /// The state after a byte of a line between chunks.
    fn after(self, byte: u8) -> Self {
        match (self, byte) {
            (Self::ChunkSize { bytes: 0, .. }, b'\n') => Self::Trailers { is_line_empty: true },
            // With the end of the line.
            (Self::ChunkSize { bytes, .. }, b'\n') => Self::Chunk(bytes.saturating_add(2)),
            (Self::ChunkSize { bytes, is_in_extension: false }, digit)
                if digit.is_ascii_hexdigit() =>
            {
                let digit = char::from(digit).to_digit(16).unwrap_or_default();
                let bytes = bytes.checked_mul(16).and_then(|high| high.checked_add(digit.into()));
                bytes.map_or(Self::Unknown, |bytes| Self::ChunkSize {
                    bytes,
                    is_in_extension: false,
                })
            }
            (Self::ChunkSize { bytes, .. }, _) => Self::ChunkSize { bytes, is_in_extension: true },
            (Self::Trailers { is_line_empty: true }, b'\n') => Self::default(),
            (Self::Trailers { .. }, b'\n') => Self::Trailers { is_line_empty: true },
            (Self::Trailers { is_line_empty }, b'\r') => Self::Trailers { is_line_empty },
            (Self::Trailers { .. }, _) => Self::Trailers { is_line_empty: false },
            (other, _) => other,
        }
    }
}

fn has_long_name(header: &httparse::Header<'_>) -> bool {
    header.name.len() > HEAD_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    const PUT: &str = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\na\r\n\r\nbc";
    const CHUNKED: &str = "PUT / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n\
        A;x=1\r\n\r\n\r\n345678\r\n03\r\nabc\r\n0\r\nt: 1\r\n\r\n";

    #[test]
    fn requests_are_told_apart_wherever_their_bytes_are_parted() {
        let all = [GET, PUT, CHUNKED, GET, CHUNKED, PUT, GET].concat();
        for cut in 0..all.len() {
            for next in [cut, cut + 1, cut + 7] {
                let mut framing = Framing::default();
                let end = next.min(all.len());
                for part in [&all[..cut], &all[cut..end], &all[end..]] {
                    framing.read(part.as_bytes()).unwrap();
                }
                assert_eq!(framing, Framing::default(), "cut at {cut} and {end}");
                // One byte more is the beginning of a head.
                framing.read(b"G").unwrap();
                assert_eq!(framing, Framing::Head(b"G".to_vec()));
            }
        }
    }

    #[test]
    fn the_length_of_a_head_is_known_if_the_bytes_begin_with_it_and_it_is_whole() {
        let mut framing = Framing::default();
        assert_eq!(framing.read(GET.as_bytes()), Ok(Some(GET.len())));
        assert_eq!(framing.read([PUT, GET].concat().as_bytes()), Ok(Some(PUT.len() - 7)));
        assert_eq!(framing.read(&GET.as_bytes()[..9]), Ok(None));
        assert_eq!(framing.read(&GET.as_bytes()[9..]), Ok(None));
        assert_eq!(framing.read(&PUT.as_bytes()[..PUT.len() - 1]), Ok(Some(PUT.len() - 7)));
        assert_eq!(framing.read(["c", GET].concat().as_bytes()), Ok(None));
        assert_eq!(framing.read(GET.as_bytes()), Ok(Some(GET.len())));
    }

    #[test]
    fn a_head_is_too_large_behind_any_request_and_a_body_is_not() {
        let part = [b'a'; 4096];
        let large = format!("PUT / HTTP/1.1\r\nContent-Length: {}\r\n\r\n", 64 * part.len());
        let chunk =
            format!("PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n", 64 * 4096);
        for before in [&large, &chunk] {
            let mut framing = Framing::default();
            framing.read(before.as_bytes()).unwrap();
            assert!((0..64).all(|_| framing.read(&part).is_ok()), "{before}");
            let ended: &[u8] = if *before == chunk { b"\r\n0\r\n\r\n" } else { b"" };
            framing.read(ended).unwrap();
            assert_eq!(framing, Framing::default(), "{before}");
        }
        for before in ["", GET, PUT, CHUNKED] {
            for begun in ["", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nX: "] {
                let mut framing = Framing::default();
                framing.read(before.as_bytes()).unwrap();
                framing.read(begun.as_bytes()).unwrap();
                let read = (0..17).find(|_| framing.read(&part).is_err());
                assert!(read.is_some_and(|read| read >= 15), "{before:?} {begun:?} {read:?}");
                assert_eq!(framing, Framing::Unknown);
            }
        }
        for (bytes, is_refused) in [((1 << 16) - 1, false), (1 << 16, true)] {
            let head = format!("GET / HTTP/1.1\r\n{}: x\r\n\r\n", "a".repeat(bytes));
            assert_eq!(Framing::default().read(head.as_bytes()).is_err(), is_refused, "{bytes}");
        }
    }

    #[test]
    fn what_is_no_request_or_follows_an_upgrade_has_no_limit() {
        for head in [
            "\0",
            "GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n",
            "CONNECT a:1 HTTP/1.1\r\n\r\n",
            "PUT / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
            "PUT / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
            "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n",
            "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n11111111111111111\r\n",
        ] {
            let mut framing = Framing::default();
            framing.read(head.as_bytes()).unwrap();
            assert_eq!(framing, Framing::Unknown, "{head:?}");
            assert!((0..64).all(|_| framing.read(&[b'a'; 4096]).is_ok()));
        }
    }
}
