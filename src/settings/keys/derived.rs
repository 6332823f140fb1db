//! Keys that are derived from the lists, each for one purpose: they seal ids, or sign texts that are not secret.

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Prk};
use aws_lc_rs::hmac::{self, HMAC_SHA256};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::list::{Key, Keys};
use super::purpose::Purpose;

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

impl SealKeys {
    pub fn derive(keys: &Keys, purpose: Purpose) -> Self {
        let derive = |key: &Key| key.derive::<_, UnboundKey>(purpose, b"", &AES_256_GCM_SIV);
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

    /// Opens `sealed` into `plain`, which must be [`TAG_BYTES`] shorter. False if it was not sealed here, or not for this
    /// purpose and binding, or was changed.
    pub fn open(&self, binding: &[u8], sealed: &[u8], plain: &mut [u8]) -> bool {
        let Some((text, tag)) = sealed.split_last_chunk::<TAG_BYTES>() else { return false };
        self.keys.iter().any(|key| {
            let nonce = Nonce::assume_unique_for_key(NONCE);
            key.open_separate_gather(nonce, Aad::from(binding), text, tag, plain).is_ok()
        })
    }
}

pub const MAC_BYTES: usize = 32;

/// HMAC-SHA256 keys for one purpose, derived from a list of keys: the first signs, all verify.
///
/// The context is the variable part of the purpose: a signature made in one context is not valid in another.
pub struct MacKeys {
    keys: Vec<hmac::Key>,
}

impl MacKeys {
    /// Derives from a list of keys, which is not empty.
    pub fn derive(keys: &[Key], purpose: Purpose, context: &[u8]) -> Self {
        let derive = |key: &Key| key.derive(purpose, context, HMAC_SHA256);
        Self { keys: keys.iter().map(derive).collect() }
    }

    /// The signature of `text` in base64url.
    pub fn sign(&self, text: impl AsRef<[u8]>) -> String {
        URL_SAFE_NO_PAD.encode(self.sign_with(0, text.as_ref()))
    }

    /// Signs with the key at an index returned by [`signer`](Self::signer).
    pub fn sign_with(&self, index: usize, text: &[u8]) -> [u8; MAC_BYTES] {
        let tag = hmac::sign(&self.keys[index], text);
        tag.as_ref().try_into().expect("SHA-256 gives 32 bytes")
    }

    /// Whether one of the keys made this signature of `text`, in constant time for each key.
    pub fn verify(&self, text: impl AsRef<[u8]>, mac: &str) -> bool {
        decode_mac(mac).is_some_and(|mac| self.signer(text.as_ref(), &mac).is_some())
    }

    /// The index of the key that signed `text`, in the same time as [`verify`](Self::verify).
    pub fn signer(&self, text: &[u8], mac: &[u8; MAC_BYTES]) -> Option<usize> {
        self.keys.iter().position(|key| hmac::verify(key, text, mac).is_ok())
    }
}

/// What the keys of TLS session tickets are derived from, one of each crypto key: that of the first seals, all open.
pub fn ticket_roots(keys: &Keys) -> Vec<Prk> {
    let derive = |key: &Key| key.derive(Purpose::TlsTicket, b"", HKDF_SHA256);
    keys.crypto_keys().iter().map(derive).collect()
}

/// A signature in base64url.
pub fn decode_mac(text: &str) -> Option<[u8; MAC_BYTES]> {
    let mut mac = [0; MAC_BYTES];
    let length = URL_SAFE_NO_PAD.decode_slice(text, &mut mac).ok()?;
    (length == MAC_BYTES).then_some(mac)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::keys::Keys;

    const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    const OTHER: &str = "_v38-_r5-Pf29fTz8vHw7-7t7Ovq6ejn5uXk4-Lh4N8=";

    fn keys(texts: &[&str], purpose: Purpose, context: &[u8]) -> MacKeys {
        MacKeys::derive(Keys::from_texts(texts).unwrap().crypto_keys(), purpose, context)
    }

    #[test]
    fn a_signature_is_valid_for_one_text_purpose_and_context() {
        let ours = keys(&[KEY], Purpose::NodeRequest, b"0");
        let mac = ours.sign(b"text");
        assert!(ours.verify(b"text", &mac));
        assert!(!ours.verify(b"texts", &mac));
        assert!(!keys(&[KEY], Purpose::NodeAnswer, b"0").verify(b"text", &mac));
        assert!(!keys(&[KEY], Purpose::NodeRequest, b"1").verify(b"text", &mac));
        assert!(!keys(&[OTHER], Purpose::NodeRequest, b"0").verify(b"text", &mac));
        let bytes = decode_mac(&mac).unwrap();
        let changed = |at: usize| {
            let mut changed = bytes;
            changed[at] ^= 1;
            URL_SAFE_NO_PAD.encode(changed)
        };
        let short = URL_SAFE_NO_PAD.encode(&bytes[..31]);
        for wrong in [&changed(0), &changed(31), &short, &mac[..42], "", &mac.repeat(2)] {
            assert!(!ours.verify(b"text", wrong), "{wrong:?}");
        }
    }

    #[test]
    fn the_first_key_signs_and_all_verify() {
        let (old, new) = (
            keys(&[OTHER], Purpose::NodeRequest, b""),
            keys(&[KEY, OTHER], Purpose::NodeRequest, b""),
        );
        assert!(new.verify(b"text", &old.sign(b"text")));
        assert!(!old.verify(b"text", &new.sign(b"text")));
        assert_eq!(new.sign(b"text"), keys(&[KEY], Purpose::NodeRequest, b"").sign(b"text"));
    }
}
