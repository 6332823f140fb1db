//! Signatures that only this installation can make, over texts that are not secret.

use aws_lc_rs::hmac::{self, HMAC_SHA256};

use super::{CryptoKey, NotOurs};

pub const MAC_BYTES: usize = 32;

/// HMAC-SHA256 keys for one purpose, derived from a list of keys: the first signs, all verify.
///
/// The context is the variable part of the purpose: a signature made in one context is not valid in another.
pub struct MacKeys {
    keys: Vec<hmac::Key>,
}

impl MacKeys {
    /// Derives from a list of keys, which is not empty.
    pub fn derive(keys: &[CryptoKey], purpose: &'static str, context: &[u8]) -> Self {
        let derive = |key: &CryptoKey| key.derive(purpose, context, HMAC_SHA256);
        Self { keys: keys.iter().map(derive).collect() }
    }

    pub fn sign(&self, text: &[u8]) -> [u8; MAC_BYTES] {
        self.sign_with(0, text)
    }

    /// Signs with the key at an index returned by [`signer`](Self::signer).
    pub fn sign_with(&self, index: usize, text: &[u8]) -> [u8; MAC_BYTES] {
        let tag = hmac::sign(&self.keys[index], text);
        tag.as_ref().try_into().expect("SHA-256 gives 32 bytes")
    }

    /// Checks that one of the keys signed `text`, in constant time for each key.
    pub fn verify(&self, text: &[u8], mac: &[u8]) -> Result<(), NotOurs> {
        self.signer(text, mac).map(|_| ()).ok_or(NotOurs)
    }

    /// The index of the key that signed `text`, in the same time as [`verify`](Self::verify).
    pub fn signer(&self, text: &[u8], mac: &[u8]) -> Option<usize> {
        self.keys.iter().position(|key| hmac::verify(key, text, mac).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::keys::Keys;

    const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    const OTHER: &str = "_v38-_r5-Pf29fTz8vHw7-7t7Ovq6ejn5uXk4-Lh4N8=";

    fn keys(texts: &[&str], purpose: &'static str, context: &[u8]) -> MacKeys {
        MacKeys::derive(Keys::from_texts(texts).unwrap().crypto_keys(), purpose, context)
    }

    #[test]
    fn a_signature_is_valid_for_one_text_purpose_and_context() {
        let ours = keys(&[KEY], "this", b"0");
        let mac = ours.sign(b"text");
        assert_eq!(ours.verify(b"text", &mac), Ok(()));
        assert_eq!(ours.verify(b"texts", &mac), Err(NotOurs));
        assert_eq!(keys(&[KEY], "that", b"0").verify(b"text", &mac), Err(NotOurs));
        assert_eq!(keys(&[KEY], "this", b"1").verify(b"text", &mac), Err(NotOurs));
        assert_eq!(keys(&[OTHER], "this", b"0").verify(b"text", &mac), Err(NotOurs));
        let mut changed = mac;
        changed[31] ^= 1;
        for wrong in [&changed[..], &mac[..31], &[], &[mac, mac].concat()] {
            assert_eq!(ours.verify(b"text", wrong), Err(NotOurs), "{wrong:?}");
        }
    }

    #[test]
    fn the_first_key_signs_and_all_verify() {
        let (old, new) = (keys(&[OTHER], "this", b""), keys(&[KEY, OTHER], "this", b""));
        assert_eq!(new.verify(b"text", &old.sign(b"text")), Ok(()));
        assert_eq!(old.verify(b"text", &new.sign(b"text")), Err(NotOurs));
        assert_eq!(new.sign(b"text"), keys(&[KEY], "this", b"").sign(b"text"));
    }
}
