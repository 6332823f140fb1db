//! Where the requests of a connection begin and end (RFC 9112 §6, §7.1), so that actix-http gets one at a time: it
//! decodes every request of its buffer at once, into some KiB for each.
//!
//! What is read here decides nothing but that. actix-http reads the same bytes, and refuses those that are not valid.

use std::mem::MaybeUninit;

use actix_http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use httparse::{Status, parse_chunk_size};

/// Bytes of the head of a request. A larger one is refused.
pub(super) const HEAD_BYTES_MAX: usize = 8 * 1024;

/// Headers of a request, as many as actix-http takes.
pub(super) const HEADERS_MAX: usize = 96;

/// Bytes of a line between the chunks of a body.
const LINE_BYTES_MAX: usize = 256;
const LINE_TOO_LONG: usize = LINE_BYTES_MAX + 1;

/// What the next bytes of a connection are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Place {
    /// The head of the next request.
    #[default]
    Head,
    /// So many bytes of a body.
    Body(u64),
    /// So many bytes of a chunk, and its end of line.
    Chunk(u64),
    /// The line with the size of a chunk.
    Size,
    /// The lines behind the last chunk.
    Trailer,
    /// Not valid. Nothing more is read.
    Invalid,
}

/// The place in the bytes of a connection.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Framing {
    place: Place,
    /// Requests whose last byte was taken.
    pub(super) taken: u64,
}

/// What follows from the bytes that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// So many of them, at least one, belong to the request.
    Take(usize),
    /// More have to come first.
    More,
    /// The head is too large.
    TooLarge,
    /// They are not valid, and nothing more is read.
    End,
}

impl Framing {
    /// Whether the next byte begins a request.
    pub(super) fn is_between(self) -> bool {
        self.place == Place::Head
    }

    /// Takes the bytes that belong to the request, to its last one. A head is taken when it is whole.
    pub(super) fn step(&mut self, bytes: &[u8]) -> Step {
        let mut taken = 0;
        while let Some(rest) = bytes.get(taken..).filter(|rest| !rest.is_empty()) {
            let before = self.taken;
            let Some(count) = self.part(rest) else { break };
            taken += count;
            if self.taken > before {
                break;
            }
        }
        match taken {
            0 if self.place == Place::Invalid => Step::End,
            0 if self.is_between() && bytes.len() > HEAD_BYTES_MAX => Step::TooLarge,
            0 => Step::More,
            _ => Step::Take(taken),
        }
    }

    /// The length of the next part. None if more has to come first.
    fn part(&mut self, bytes: &[u8]) -> Option<usize> {
        match self.place {
            Place::Head => self.head(bytes),
            Place::Body(left) => {
                let (count, left) = split(bytes, left);
                self.place = Place::Body(left);
                if left == 0 {
                    self.end();
                }
                Some(count)
            }
            Place::Chunk(left) => {
                let (count, left) = split(bytes, left);
                self.place = if left > 0 { Place::Chunk(left) } else { Place::Size };
                Some(count)
            }
            Place::Size => match parse_chunk_size(bytes) {
                Ok(Status::Complete((LINE_TOO_LONG.., _))) => {
                    self.go_to(Place::Invalid, LINE_BYTES_MAX)
                }
                Ok(Status::Complete((count, 0))) => self.go_to(Place::Trailer, count),
                Ok(Status::Complete((count, size))) => {
                    self.go_to(Place::Chunk(size.saturating_add(2)), count)
                }
                Ok(Status::Partial) => self.wait_for_line(bytes),
                Err(_) => self.go_to(Place::Invalid, bytes.len().min(LINE_BYTES_MAX)),
            },
            Place::Trailer => {
                let line = &bytes[..bytes.len().min(LINE_TOO_LONG)];
                let Some(end) = line.iter().position(|byte| *byte == b'\n') else {
                    return self.wait_for_line(bytes);
                };
                if matches!(bytes[..end], [] | [b'\r']) {
                    self.end();
                }
                Some(end + 1)
            }
            Place::Invalid => None,
        }
    }

    fn head(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut headers = [const { MaybeUninit::uninit() }; HEADERS_MAX];
        let mut head = httparse::Request::new(&mut []);
        match head.parse_with_uninit_headers(bytes, &mut headers) {
            Ok(Status::Complete(count)) if count <= HEAD_BYTES_MAX => {
                let named = |name: &str| {
                    head.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))
                };
                let length = named(CONTENT_LENGTH.as_str());
                let length = length.and_then(|length| str::from_utf8(length.value).ok());
                match length.and_then(|length| length.trim().parse().ok()) {
                    _ if named(TRANSFER_ENCODING.as_str()).is_some() => self.place = Place::Size,
                    Some(length) if length > 0 => self.place = Place::Body(length),
                    _ => self.end(),
                }
                Some(count)
            }
            Ok(_) => None,
            Err(_) => self.go_to(Place::Invalid, bytes.len()),
        }
    }

    fn end(&mut self) {
        self.place = Place::Head;
        self.taken += 1;
    }

    #[expect(clippy::unnecessary_wraps, reason = "it is the answer of a part")]
    fn go_to(&mut self, place: Place, count: usize) -> Option<usize> {
        self.place = place;
        Some(count)
    }

    fn wait_for_line(&mut self, bytes: &[u8]) -> Option<usize> {
        match bytes.len() > LINE_BYTES_MAX {
            true => self.go_to(Place::Invalid, LINE_BYTES_MAX),
            false => None,
        }
    }
}

/// How many of the bytes belong to the `left` ones, and how many of those are then to come.
fn split(bytes: &[u8], left: u64) -> (usize, u64) {
    let count = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
    (count, left - count as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    const POST: &str = "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nGET /";
    const CHUNKED: &str = "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4;a=b\r\n\r\n\r\n\r\n1\r\na\r\n0\r\nA: b\r\n\r\n";
    const NEWLINES: &str = "\r\nGET / HTTP/1.1\nHost: a\n\n";

    /// The parts in which `sent` is taken if it arrives in pieces of `size` bytes.
    fn parts(sent: &[u8], size: usize) -> (Vec<Vec<u8>>, Framing) {
        let (mut framing, mut requests, mut waiting) = (Framing::default(), Vec::new(), Vec::new());
        let mut request = Vec::new();
        for piece in sent.chunks(size) {
            waiting.extend_from_slice(piece);
            while let Step::Take(count) = framing.step(&waiting) {
                request.extend(waiting.drain(..count));
                if framing.taken as usize > requests.len() {
                    requests.push(std::mem::take(&mut request));
                }
            }
        }
        requests.extend(Some(request).filter(|request| !request.is_empty()));
        (requests, framing)
    }

    #[test]
    fn each_request_is_taken_alone_wherever_the_bytes_are_cut() {
        let requests = [GET, POST, CHUNKED, NEWLINES, GET, CHUNKED, POST];
        let sent = requests.concat();
        for size in 1..=sent.len() {
            let (parts, framing) = parts(sent.as_bytes(), size);
            assert_eq!(parts, requests.map(|request| request.as_bytes().to_vec()), "{size}");
            assert!(framing.is_between());
        }
    }

    #[test]
    fn what_is_not_valid_is_taken_in_part_and_nothing_after_it() {
        let long = "a".repeat(LINE_BYTES_MAX + 1);
        let chunked = "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        for (sent, taken) in [
            (format!("GET\0 {GET}"), None),
            (format!("{chunked}x\r\n{GET}"), Some(chunked.len() + 3 + GET.len())),
            (format!("{chunked}1;{long}{GET}"), Some(chunked.len() + LINE_BYTES_MAX)),
            (format!("{chunked}0\r\n{long}{GET}"), Some(chunked.len() + 3 + LINE_BYTES_MAX)),
        ] {
            let (parts, mut framing) = parts(sent.as_bytes(), sent.len());
            assert_eq!(parts.concat().len(), taken.unwrap_or(sent.len()), "{sent}");
            assert_eq!((framing.taken, framing.step(GET.as_bytes())), (0, Step::End));
        }
    }

    #[test]
    fn a_head_is_taken_up_to_its_largest_size() {
        let head = |bytes: usize| {
            let padding = "x".repeat(bytes - GET.len() - "A: \r\n".len());
            GET.replace("Host: a\r\n", &format!("Host: a\r\nA: {padding}\r\n"))
        };
        let mut framing = Framing::default();
        let largest = head(HEAD_BYTES_MAX);
        assert_eq!(framing.step(&largest.as_bytes()[..HEAD_BYTES_MAX - 1]), Step::More);
        assert_eq!(framing.step(largest.as_bytes()), Step::Take(HEAD_BYTES_MAX));
        let larger = head(HEAD_BYTES_MAX + 1);
        assert_eq!(framing.step(&larger.as_bytes()[..HEAD_BYTES_MAX]), Step::More);
        assert_eq!(framing.step(larger.as_bytes()), Step::TooLarge);
    }
}
