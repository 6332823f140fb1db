//! Encryption of ids into tokens that only this installation can open.

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, Nonce, UnboundKey};

use super::{CryptoKey, Keys};

/// Length of a sealed text minus that of its plain text, in bytes.
pub const TAG_BYTES: usize = 16;

/// One fixed nonce for every text sealed with a key.
///
/// With a repeated nonce, AES-GCM-SIV (RFC 8452) reveals only whether two sealed texts have the
/// same plain text and binding. The plain texts here are unique ids, and the same channel is to get
/// the same endpoint again. A nonce per token would make every endpoint 16 characters longer.
const NONCE: [u8; 12] = [0; 12];

/// Keys for one purpose, derived from the crypto keys: the first seals, all open.
///
/// A token sealed for one purpose opens for no other, and no key is used both here and by Fernet.
pub struct SealKeys {
    keys: Vec<LessSafeKey>,
}

/// The bytes were not sealed here, or not for this purpose and binding, or were changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotOurs;

impl SealKeys {
    pub fn derive(keys: &Keys, purpose: &'static str) -> Self {
        let derive = |key: &CryptoKey| key.derive::<_, UnboundKey>(purpose, b"", &AES_256_GCM_SIV);
        Self { keys: keys.crypto_keys().iter().map(derive).map(LessSafeKey::new).collect() }
    }

    /// Seals `in_out` in place, with its last [`TAG_BYTES`] for the tag; `binding` is
    /// authenticated.
    pub fn seal(&self, binding: &[u8], in_out: &mut [u8]) {
        let (text, tag) = in_out
            .split_last_chunk_mut::<TAG_BYTES>()
            .expect("callers leave room for the tag behind the text");
        let nonce = Nonce::assume_unique_for_key(NONCE);
        let sealed = self.keys[0]
            .seal_in_place_separate_tag(nonce, Aad::from(binding), text)
            .expect("the text is far below the cipher's limit");
        tag.copy_from_slice(sealed.as_ref());
    }

    /// Opens `sealed` into `plain`, which must be [`TAG_BYTES`] shorter.
    pub fn open(&self, binding: &[u8], sealed: &[u8], plain: &mut [u8]) -> Result<(), NotOurs> {
        let (text, tag) = sealed.split_last_chunk::<TAG_BYTES>().ok_or(NotOurs)?;
        let opened = self.keys.iter().any(|key| {
            let nonce = Nonce::assume_unique_for_key(NONCE);
            key.open_separate_gather(nonce, Aad::from(binding), text, tag, plain).is_ok()
        });
        if opened { Ok(()) } else { Err(NotOurs) }
    }
}
