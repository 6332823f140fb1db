//! Sealed bytes as the last segment of a path, in base64url without padding.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::settings::keys::{SealKeys, TAG_BYTES};

/// The length in a path of sealed bytes that have `plain_bytes` in clear.
pub(crate) const fn chars(plain_bytes: usize) -> usize {
    ((plain_bytes + TAG_BYTES) * 4).div_ceil(3)
}

/// The path that begins with `start`, with these parts sealed. `MAX` is their greatest length, with that of the tag.
pub(crate) fn seal<const MAX: usize>(keys: &SealKeys, start: &str, parts: &[&[u8]]) -> String {
    let (mut buffer, mut length) = ([0; MAX], 0);
    for part in parts {
        buffer[length..length + part.len()].copy_from_slice(part);
        length += part.len();
    }
    let sealed = &mut buffer[..length + TAG_BYTES];
    keys.seal(&[], sealed);
    let mut path = String::with_capacity(start.len() + chars(length));
    path.push_str(start);
    URL_SAFE_NO_PAD.encode_string(sealed, &mut path);
    path
}

/// Opens the text behind `start` into `buffer`. None if these keys did not seal it with this binding, or if it is
/// longer than the buffer.
pub(crate) fn open<'a, const MAX: usize>(
    keys: &SealKeys,
    binding: &[u8],
    text: &str,
    buffer: &'a mut [u8; MAX],
) -> Option<&'a [u8]> {
    if text.len() > (MAX * 4).div_ceil(3) {
        return None;
    }
    let mut sealed = [0; MAX];
    let length = URL_SAFE_NO_PAD.decode_slice(text, &mut sealed).ok()?;
    let plain = &mut buffer[..length.checked_sub(TAG_BYTES)?];
    keys.open(binding, &sealed[..length], plain).then_some(plain)
}
