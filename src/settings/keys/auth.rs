//! The keys of registration secrets. autopush uses the text of such a key as it is, and so does this server.

use std::fmt;

use zeroize::Zeroizing;

use super::KeyListError;

/// Minimum length: 96 bits if the text is base64.
pub(super) const CHARS_MIN: usize = 16;

pub(super) const CHARS_MAX: usize = 256;

/// A key of registration secrets: its text, which is never printed, and is wiped when dropped.
pub struct AuthKey(Zeroizing<String>);

impl AuthKey {
    pub(super) fn parse_at(
        text: &str,
        _list: &'static str,
        place: usize,
    ) -> Result<Self, KeyListError> {
        let is_key = (CHARS_MIN..=CHARS_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_graphic());
        let key = is_key.then(|| Self(Zeroizing::new(text.to_owned())));
        key.ok_or(KeyListError::NotAnAuthKey { place })
    }

    /// The text, which is the key of the HMAC.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for AuthKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuthKey(redacted)")
    }
}
