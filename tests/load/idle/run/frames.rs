//! WebSocket frames as an agent reads and writes them: none is fragmented, and masks are zero.

pub(crate) const TEXT: u8 = 1;
pub(crate) const CLOSE: u8 = 8;
pub(crate) const PING: u8 = 9;
pub(crate) const PONG: u8 = 10;

/// A frame of the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) opcode: u8,
    pub(crate) payload: &'a [u8],
}

/// The first frame and its size in bytes; none if it is incomplete.
pub(crate) fn first(bytes: &[u8]) -> Option<(Frame<'_>, usize)> {
    let [head, length] = *bytes.first_chunk()?;
    let (start, length) = match length {
        126 => (4, u16::from_be_bytes(*bytes[2..].first_chunk()?).into()),
        127 => (10, u64::from_be_bytes(*bytes[2..].first_chunk()?) as usize),
        length => (2, length.into()),
    };
    let end = start + length;
    Some((Frame { opcode: head & 0x0f, payload: bytes.get(start..end)? }, end))
}

/// Appends a frame of an agent. A payload has at most 65,535 bytes.
pub(crate) fn write(frames: &mut Vec<u8>, opcode: u8, payload: &[u8]) {
    frames.push(0x80 | opcode);
    match u8::try_from(payload.len()) {
        Ok(length @ 0..126) => frames.push(0x80 | length),
        _ => {
            let length = u16::try_from(payload.len()).expect("what an agent sends is short");
            frames.push(0x80 | 126);
            frames.extend(length.to_be_bytes());
        }
    }
    frames.extend([0; 4]);
    frames.extend(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_when_its_last_byte_is_there() {
        for length in [0, 125, 126, 65_535] {
            let (payload, mut frame) = (vec![b'x'; length], Vec::new());
            write(&mut frame, TEXT, &payload);
            // A server's frame is that of an agent without the mask.
            let head = frame.len() - length - 4;
            frame.drain(head..head + 4);
            frame[1] &= 0x7f;
            assert_eq!(first(&frame[..frame.len() - 1]), None);
            let end = frame.len();
            frame.push(0);
            assert_eq!(first(&frame), Some((Frame { opcode: TEXT, payload: &payload }, end)));
        }
    }
}
