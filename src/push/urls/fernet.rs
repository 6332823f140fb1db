//! Decrypts Fernet tokens, as the specification of Fernet describes them.
//!
//! ```text
//!   0x80 | time, 8 bytes | IV, 16 bytes | AES-128-CBC with PKCS #7 | HMAC-SHA256 of all before, 32 bytes
//! ```

use aws_lc_rs::cipher::{AES_128, DecryptionContext, PaddedBlockDecryptingKey, UnboundCipherKey};
use aws_lc_rs::hmac;
use aws_lc_rs::iv::FixedLength;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use state_machine::{Span, Time};

use crate::settings::keys::{Key, Keys};

const VERSION: u8 = 0x80;
const TIME_BYTES: usize = 8;
const IV_BYTES: usize = 16;
const MAC_BYTES: usize = 32;

/// Maximum time by which the clock of the server that made a token was ahead.
const CLOCK_LEEWAY: Span = Span::from_secs(60);

/// Keys that all decrypt.
pub struct FernetKeys(Vec<FernetKey>);

struct FernetKey {
    signing: hmac::Key,
    encryption: PaddedBlockDecryptingKey,
}

impl FernetKeys {
    pub fn new(keys: &Keys) -> Self {
        let key = |key: &Key| {
            let (signing, encryption) = key.as_bytes().split_at(key.as_bytes().len() / 2);
            let encryption = UnboundCipherKey::new(&AES_128, encryption);
            let encryption = encryption.and_then(PaddedBlockDecryptingKey::cbc_pkcs7);
            FernetKey {
                signing: hmac::Key::new(hmac::HMAC_SHA256, signing),
                encryption: encryption.expect("half of a key is one of AES-128"),
            }
        };
        Self(keys.crypto_keys().iter().map(key).collect())
    }

    /// Whether one of these keys made the token.
    pub fn open(&self, token: &str, now: Time) -> bool {
        self.decrypt(token, now, &mut vec![0; token.len()]).is_some()
    }

    /// The contents of a token, with or without its padding. None if these keys did not make it, or if it is longer
    /// than `buffer`.
    pub(super) fn decrypt<'a>(
        &self,
        token: &str,
        now: Time,
        buffer: &'a mut [u8],
    ) -> Option<&'a [u8]> {
        let length = URL_SAFE_NO_PAD.decode_slice(token.trim_end_matches('='), buffer).ok()?;
        let (signed, mac) = buffer[..length].split_last_chunk_mut::<MAC_BYTES>()?;
        let is_of = |key: &&FernetKey| hmac::verify(&key.signing, signed, mac).is_ok();
        let key = self.0.iter().find(is_of)?;
        let (head, rest) = signed.split_first_chunk_mut::<{ 1 + TIME_BYTES }>()?;
        let [version, time @ ..] = *head;
        let made_at = Time(u64::from_be_bytes(time).saturating_mul(1000));
        if version != VERSION || made_at > now + CLOCK_LEEWAY {
            return None;
        }
        let (iv, sealed) = rest.split_first_chunk_mut::<IV_BYTES>()?;
        let context = DecryptionContext::Iv128(FixedLength::from(*iv));
        key.encryption.decrypt(sealed, context).ok().map(|plain| &*plain)
    }
}

#[cfg(test)]
mod tests {
    use fernet::Fernet;
    use proptest::prelude::*;

    use super::*;

    /// The key of the specification, and its time.
    const KEY: &str = "cw_0x689RpI-jtRR7oE8h_eQsKImvJapLeSbXpwF4e4=";
    const NOW: Time = Time(499_162_801_000);
    const OF_THE_FUTURE: &str = "gAAAAAAdwStRAAECAwQFBgcICQoLDA0OD3HkMATM5lFqGaerZ-fWPAnja1xKYyhd-Y6mSkTOyTGJ\
        mw2Xc2a6kBd-iX9b_qXQcw==";

    fn decrypted(token: &str, now: Time) -> Option<Vec<u8>> {
        let keys = FernetKeys::new(&Keys::from_texts(&[KEY]).unwrap());
        keys.decrypt(token, now, &mut [0; 144]).map(<[u8]>::to_vec)
    }

    #[test]
    fn the_vectors_of_the_specification_are_accepted_and_refused() {
        for (name, token, expected) in [
            (
                "verify",
                "gAAAAAAdwJ6wAAECAwQFBgcICQoLDA0ODy021cpGVWKZ_eEwCGM4BLLF_5CV9dOPmrhuVUPgJobwOz7JcbmrR64jVmpU4IwqDA==",
                Some(&b"hello"[..]),
            ),
            (
                "incorrect mac",
                "gAAAAAAdwJ6xAAECAwQFBgcICQoLDA0OD3HkMATM5lFqGaerZ-fWPAl1-szkFVzXTuGb4hR8AKtwcaX1YdykQUFBQUFBQUFBQQ==",
                None,
            ),
            ("too short", "gAAAAAAdwJ6xAAECAwQFBgcICQoLDA0OD3HkMATM5lFqGaerZ-fWPA==", None),
            (
                "invalid base64",
                "%%%%%%%%%%%%%AECAwQFBgcICQoLDA0OD3HkMATM5lFqGaerZ-fWPAl1-szkFVzXTuGb4hR8AKtwcaX1YdykRtfsH-p1YsUD2Q==",
                None,
            ),
            (
                "payload size not multiple of block size",
                "gAAAAAAdwJ6xAAECAwQFBgcICQoLDA0OD3HkMATM5lFqGaerZ-fWPOm73QeoCk9uGib28Xe5vz6oxq5nmxbx_v7mrfyudzUm",
                None,
            ),
            (
                "payload padding error",
                "gAAAAAAdwJ6xAAECAwQFBgcICQoLDA0ODz4LEpdELGQAad7aNEHbf-JkLPIpuiYRLQ3RtXatOYREu2FWke6CnJNYIbkuKNqOhw==",
                None,
            ),
            ("far-future TS (unacceptable clock skew)", OF_THE_FUTURE, None),
            (
                "expired TTL, which endpoints do not have",
                "gAAAAAAdwJ6xAAECAwQFBgcICQoLDA0OD3HkMATM5lFqGaerZ-fWPAl1-szkFVzXTuGb4hR8AKtwcaX1YdykRtfsH-p1YsUD2Q==",
                Some(b""),
            ),
            (
                "incorrect IV (causes padding error)",
                "gAAAAAAdwJ6xBQECAwQFBgcICQoLDA0OD3HkMATM5lFqGaerZ-fWPAkLhFLHpGtDBRLRTZeUfWgHSv49TF2AUEZ1TIvcZjK1zQ==",
                None,
            ),
        ] {
            assert_eq!(decrypted(token, NOW).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn a_token_of_the_future_is_refused_until_its_time_less_the_leeway() {
        let made_at = Time(499_198_801_000);
        assert_eq!(decrypted(OF_THE_FUTURE, made_at - Span::from_secs(61)), None);
        let accepted = decrypted(OF_THE_FUTURE, made_at - Span::from_secs(60));
        assert_eq!(accepted.as_deref(), Some(&b""[..]));
    }

    proptest! {
        /// Another implementation of the specification makes the tokens.
        #[test]
        fn tokens_of_the_fernet_crate_are_accepted(plain in proptest::collection::vec(any::<u8>(), 0..80)) {
            let token = Fernet::new(KEY).unwrap().encrypt(&plain);
            let now = Time(u64::MAX / 2);
            prop_assert_eq!(decrypted(&token, now), Some(plain.clone()));
            prop_assert_eq!(decrypted(token.trim_end_matches('='), now), Some(plain));
        }
    }
}
