//! Encryption of messages, both ways: `aes128gcm` (RFC 8291) and the older `aesgcm`.
//!
//! Mozilla's `ece` crate decrypts, and encrypts in the old encoding; the adapter below gives it the cryptography of
//! aws-lc. It pads each message to a multiple of 128 bytes, which leaves no room for the longest.

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use aws_lc_rs::rand;
use ece::crypto::{EcKeyComponents, set_cryptographer};
use ece::legacy::{self, AesGcmEncryptedBlock};
use ece::{Cryptographer, LocalKeyPair, RemotePublicKey};
use state_machine::{Encoding, Payload};
use std::any::Any;

use super::base64url::from_base64url;
use super::keypair::{KeyPair, PUBLIC_BYTES, is_public};
pub use super::subscription::AUTH_BYTES;
use super::subscription::Keys;

/// The longest message, in bytes, whose encrypted form every push service accepts: a body of 4096 bytes (RFC 8030 §7.2).
pub const MESSAGE_BYTES_MAX: usize = BODY_BYTES_MAX - HEADER_BYTES - DELIMITER_BYTES - TAG_BYTES;

/// The longest message in the old encoding, in bytes, with the padding of `ece`.
const AESGCM_MESSAGE_BYTES_MAX: usize = 3966;

const BODY_BYTES_MAX: usize = 4096;

/// Salt, record size, length of the key id, and the sender's public key as the key id (RFC 8188 §2.1).
const HEADER_BYTES: usize = SALT_BYTES + 4 + 1 + PUBLIC_BYTES;

const SALT_BYTES: usize = 16;

/// The end of the message in the only record (RFC 8188 §2).
const DELIMITER: u8 = 2;
const DELIMITER_BYTES: usize = 1;

/// Bytes that AES-GCM adds.
const TAG_BYTES: usize = 16;

/// Messages are padded to a multiple of this many bytes, to hide their length.
const PADDED_TO_BYTES: usize = 128;

/// The content encoding of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Coding {
    /// RFC 8188, what every user agent of today understands
    Aes128gcm,
    /// the draft before it
    Aesgcm,
}

/// Why a message was not encrypted or decrypted.
#[derive(Debug, thiserror::Error)]
pub enum EncryptionError {
    #[error("it has {bytes} bytes; in aesgcm a push carries at most {max}")]
    TooLong { bytes: usize, max: usize },
    /// A header of the old encoding is missing or malformed.
    #[error("the {0} is missing or malformed")]
    Header(&'static str),
    /// A message to decrypt was encrypted for another subscription, or damaged.
    #[error("{0}")]
    Failed(#[from] ece::Error),
}

/// Encrypts a message for a subscription. An empty message is a push without a payload, and is not encrypted. The
/// length of one in aes128gcm is limited by the server.
pub fn encrypt(keys: &Keys, message: &[u8], coding: Coding) -> Result<Payload, EncryptionError> {
    use_aws_lc();
    let (bytes, max) = (message.len(), AESGCM_MESSAGE_BYTES_MAX);
    match coding {
        Coding::Aes128gcm => {
            let data = encrypt_aes128gcm(keys, message)?.into();
            Ok(Payload { data, encoding: Encoding::Aes128Gcm })
        }
        Coding::Aesgcm if bytes > max => Err(EncryptionError::TooLong { bytes, max }),
        Coding::Aesgcm => encrypt_aesgcm(keys, message),
    }
}

/// One record (RFC 8291 §3 and §4), padded as far as every push service takes it.
fn encrypt_aes128gcm(keys: &Keys, message: &[u8]) -> Result<Vec<u8>, EncryptionError> {
    let (own, mut salt) = (KeyPair::generate(), [0; SALT_BYTES]);
    AwsLc.random_bytes(&mut salt)?;
    let secret = own.agree(&keys.p256dh).ok_or(ece::Error::CryptoError)?;
    let info = [b"WebPush: info\0".as_slice(), &keys.p256dh, own.public()].concat();
    let input = AwsLc.hkdf_sha256(&keys.auth, &secret, &info, 32)?;
    let key = AwsLc.hkdf_sha256(&salt, &input, b"Content-Encoding: aes128gcm\0", 16)?;
    let nonce = AwsLc.hkdf_sha256(&salt, &input, b"Content-Encoding: nonce\0", 12)?;

    let bytes = message.len() + DELIMITER_BYTES;
    let longest = (MESSAGE_BYTES_MAX + DELIMITER_BYTES).max(bytes);
    let mut record = [message, &[DELIMITER]].concat();
    record.resize(bytes.next_multiple_of(PADDED_TO_BYTES).min(longest), 0);
    let size = u32::try_from(longest + HEADER_BYTES + TAG_BYTES).unwrap_or(u32::MAX).to_be_bytes();
    let header = [&salt[..], &size, &[PUBLIC_BYTES as u8], own.public()].concat();
    Ok([header, AwsLc.aes_gcm_128_encrypt(&key, &nonce, &record)?].concat())
}

fn encrypt_aesgcm(keys: &Keys, message: &[u8]) -> Result<Payload, EncryptionError> {
    let block = legacy::encrypt_aesgcm(&keys.p256dh, &keys.auth, message)?;
    let header = |wanted| {
        let found = block.headers(None).into_iter().find(|(name, _)| *name == wanted);
        found.map(|(_, value)| value.into_boxed_str()).expect("ece gives both headers")
    };
    let encoding =
        Encoding::AesGcm { encryption: header("Encryption"), crypto_key: header("Crypto-Key") };
    let data = from_base64url(&block.body()).expect("ece writes base64url").into();
    Ok(Payload { data, encoding })
}

/// Decrypts a message with the subscription's key pair and authentication secret.
pub fn decrypt(
    pair: &KeyPair,
    auth: &[u8; AUTH_BYTES],
    payload: &Payload,
) -> Result<Vec<u8>, EncryptionError> {
    use_aws_lc();
    let components = components(pair);
    match &payload.encoding {
        Encoding::Aes128Gcm => Ok(ece::decrypt(&components, auth, &payload.data)?),
        Encoding::AesGcm { encryption, crypto_key } => {
            let block = aesgcm_block(encryption, crypto_key, &payload.data)?;
            Ok(legacy::decrypt_aesgcm(&components, auth, &block)?)
        }
        Encoding::Plain => Ok(payload.data.to_vec()),
    }
}

fn components(pair: &KeyPair) -> EcKeyComponents {
    EcKeyComponents::new(pair.private_bytes(), pair.public().to_vec())
}

fn aesgcm_block(
    encryption: &str,
    crypto_key: &str,
    data: &[u8],
) -> Result<AesGcmEncryptedBlock, EncryptionError> {
    let bytes = |header, name| parameter(header, name).and_then(from_base64url);
    let dh = bytes(crypto_key, "dh").ok_or(EncryptionError::Header("dh of Crypto-Key"))?;
    let salt = bytes(encryption, "salt").ok_or(EncryptionError::Header("salt of Encryption"))?;
    let rs = match parameter(encryption, "rs") {
        Some(text) => text.parse().map_err(|_| EncryptionError::Header("rs of Encryption"))?,
        None => DEFAULT_RECORD_BYTES,
    };
    Ok(AesGcmEncryptedBlock::new(&dh, &salt, rs, data.to_vec())?)
}

const DEFAULT_RECORD_BYTES: u32 = 4096;

/// A parameter of a header such as `keyid=p256dh;dh=...,p256ecdsa=...`.
fn parameter<'a>(header: &'a str, wanted: &str) -> Option<&'a str> {
    header.split([';', ',']).find_map(|part| {
        let (name, value) = part.trim().split_once('=')?;
        name.eq_ignore_ascii_case(wanted).then(|| value.trim_matches('"'))
    })
}

/// Sets the cryptography of `ece`, once in a process.
fn use_aws_lc() {
    // An error means that it is set already.
    let _set_before = set_cryptographer(&AwsLc);
}

/// The adapter of aws-lc for `ece`.
struct AwsLc;

struct Remote(Vec<u8>);

impl Cryptographer for AwsLc {
    fn generate_ephemeral_keypair(&self) -> ece::Result<Box<dyn LocalKeyPair>> {
        Ok(Box::new(KeyPair::generate()))
    }

    fn import_key_pair(&self, components: &EcKeyComponents) -> ece::Result<Box<dyn LocalKeyPair>> {
        let pair = KeyPair::from_bytes(components.private_key());
        Ok(Box::new(pair.ok_or(ece::Error::CryptoError)?))
    }

    fn import_public_key(&self, raw: &[u8]) -> ece::Result<Box<dyn RemotePublicKey>> {
        if !is_public(raw) {
            return Err(ece::Error::InvalidKeyLength);
        }
        Ok(Box::new(Remote(raw.to_vec())))
    }

    fn compute_ecdh_secret(
        &self,
        remote: &dyn RemotePublicKey,
        local: &dyn LocalKeyPair,
    ) -> ece::Result<Vec<u8>> {
        let local: Option<&KeyPair> = local.as_any().downcast_ref();
        let remote = remote.as_raw()?;
        local.and_then(|local| local.agree(&remote)).ok_or(ece::Error::CryptoError)
    }

    fn hkdf_sha256(
        &self,
        salt: &[u8],
        secret: &[u8],
        info: &[u8],
        len: usize,
    ) -> ece::Result<Vec<u8>> {
        // Fewer bytes are the beginning of 32: `ece` derives no longer ones.
        let mut derived = vec![0; 32];
        let extracted = Salt::new(HKDF_SHA256, salt).extract(secret);
        let info = [info];
        let expanded = extracted.expand(&info, HKDF_SHA256);
        expanded.and_then(|key| key.fill(&mut derived)).map_err(|_| ece::Error::CryptoError)?;
        derived.truncate(len);
        Ok(derived)
    }

    fn aes_gcm_128_encrypt(&self, key: &[u8], iv: &[u8], data: &[u8]) -> ece::Result<Vec<u8>> {
        let (key, nonce) = aes_gcm_128(key, iv)?;
        let mut sealed = data.to_vec();
        key.seal_in_place_append_tag(nonce, Aad::empty(), &mut sealed)
            .map_err(|_| ece::Error::CryptoError)?;
        Ok(sealed)
    }

    fn aes_gcm_128_decrypt(
        &self,
        key: &[u8],
        iv: &[u8],
        ciphertext_and_tag: &[u8],
    ) -> ece::Result<Vec<u8>> {
        let (key, nonce) = aes_gcm_128(key, iv)?;
        let mut opened = ciphertext_and_tag.to_vec();
        let plain = key
            .open_in_place(nonce, Aad::empty(), &mut opened)
            .map_err(|_| ece::Error::CryptoError)?;
        Ok(plain.to_vec())
    }

    fn random_bytes(&self, dest: &mut [u8]) -> ece::Result<()> {
        rand::fill(dest).map_err(|_| ece::Error::CryptoError)
    }
}

fn aes_gcm_128(key: &[u8], iv: &[u8]) -> ece::Result<(LessSafeKey, Nonce)> {
    let key = UnboundKey::new(&AES_128_GCM, key).map_err(|_| ece::Error::CryptoError)?;
    let nonce = Nonce::try_assume_unique_for_key(iv).map_err(|_| ece::Error::CryptoError)?;
    Ok((LessSafeKey::new(key), nonce))
}

impl LocalKeyPair for KeyPair {
    fn pub_as_raw(&self) -> ece::Result<Vec<u8>> {
        Ok(self.public().to_vec())
    }

    fn raw_components(&self) -> ece::Result<EcKeyComponents> {
        Ok(components(self))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl RemotePublicKey for Remote {
    fn as_raw(&self) -> ece::Result<Vec<u8>> {
        Ok(self.0.clone())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUTH: [u8; AUTH_BYTES] = *b"sixteen secrets!";

    fn keys(pair: &KeyPair) -> Keys {
        Keys { p256dh: *pair.public(), auth: AUTH }
    }

    fn bytes(base64url: &str) -> Vec<u8> {
        from_base64url(&base64url.split_whitespace().collect::<String>()).unwrap()
    }

    /// RFC 8291 §5 and Appendix A, encrypted with its fixed keys and salt and decrypted again.
    #[test]
    fn the_cryptography_passes_the_test_vector_of_rfc_8291() {
        use_aws_lc();
        ece::crypto::test_cryptographer(AwsLc);
    }

    #[test]
    fn the_example_of_rfc_8291_section_5_is_decrypted() {
        let pair = KeyPair::from_bytes(&bytes("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"));
        let pair = pair.unwrap();
        let point = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcx\
                     aOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
        assert_eq!(pair.public().as_slice(), bytes(point));
        let auth = bytes("BTBZMqHH6r4Tts7J_aSIgg").try_into().unwrap();
        let body = "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27ml
                    mlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPT
                    pK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN";
        let payload = Payload { data: bytes(body).into(), encoding: Encoding::Aes128Gcm };
        let message = decrypt(&pair, &auth, &payload).unwrap();
        assert_eq!(message, b"When I grow up, I want to be a watermelon");
    }

    /// The example of draft-ietf-webpush-encryption-04 §5.
    #[test]
    fn the_example_of_the_old_encoding_is_decrypted() {
        let pair = KeyPair::from_bytes(&bytes("9FWl15_QUQAWDaD3k3l50ZBZQJ4au27F1V4F0uLSD_M"));
        let auth = b"Goo goo g' joob!";
        let payload = Payload {
            data: bytes("6nqAQUME8hNqw5J3kl8cpVVJylXKYqZOeseZG8UueKpA").into(),
            encoding: Encoding::AesGcm {
                encryption: "keyid=p256dh; salt=lngarbyKfMoi9Z75xYXmkg".into(),
                crypto_key: "keyid=p256dh;dh=BNoRDbb84JGm8g5Z5CFxurSqsXWJ11ItfXEWYVLE85Y7\
                             CYkDjXsIEc4aqxYaQ1G8BqkXCJ6DPpDrWtdWj_mugHU"
                    .into(),
            },
        };
        let message = decrypt(&pair.unwrap(), auth, &payload).unwrap();
        assert_eq!(message, b"I am the walrus");
    }

    #[test]
    fn an_encrypted_message_is_decrypted_in_both_encodings_up_to_the_longest() {
        let pair = KeyPair::generate();
        for coding in [Coding::Aes128gcm, Coding::Aesgcm] {
            let max = if coding == Coding::Aesgcm { AESGCM_MESSAGE_BYTES_MAX } else { 3993 };
            for length in [1, 127, 128, 3900, 3966, max] {
                let message = vec![b'x'; length];
                let payload = encrypt(&keys(&pair), &message, coding).unwrap();
                assert!(payload.data.len() <= 4096, "{length}: {}", payload.data.len());
                assert_eq!(decrypt(&pair, &AUTH, &payload).unwrap(), message);
            }
        }
    }

    /// Of servers with a higher `payload_bytes_max`. The library decrypts up to this record size.
    #[test]
    fn a_longer_message_is_one_larger_record_without_padding() {
        let pair = KeyPair::generate();
        for body in [4097, 1_000_000] {
            let message = vec![b'x'; body - (4096 - MESSAGE_BYTES_MAX)];
            let payload = encrypt(&keys(&pair), &message, Coding::Aes128gcm).unwrap();
            assert_eq!(payload.data.len(), body);
            assert_eq!(payload.data[16..20], u32::try_from(body).unwrap().to_be_bytes());
            assert_eq!(decrypt(&pair, &AUTH, &payload).unwrap(), message);
        }
    }

    /// RFC 8188 §2.1: salt, record size, length of the key id; RFC 8291 §4: one record, and the
    /// key id is the sender's public key.
    #[test]
    fn an_aes128gcm_body_begins_with_salt_record_size_and_public_key_and_is_one_record() {
        let pair = KeyPair::generate();
        let one = encrypt(&keys(&pair), &[1; MESSAGE_BYTES_MAX], Coding::Aes128gcm).unwrap().data;
        let other = encrypt(&keys(&pair), &[1; MESSAGE_BYTES_MAX], Coding::Aes128gcm).unwrap().data;
        assert_ne!(one[..16], other[..16], "the salt is random");
        let record = u32::from_be_bytes(one[16..20].try_into().unwrap());
        assert_eq!((record, one[20]), (4096, 65));
        assert!(is_public(&one[21..86]));
        assert_eq!((one.len(), MESSAGE_BYTES_MAX), (4096, 3993));
    }

    #[test]
    fn the_length_of_a_message_shows_in_steps_of_128_bytes() {
        let pair = KeyPair::generate();
        let length = |of: usize| {
            let payload = encrypt(&keys(&pair), &vec![1; of], Coding::Aes128gcm).unwrap();
            payload.data.len() - HEADER_BYTES - TAG_BYTES
        };
        assert_eq!([1, 127, 128, 255, 256].map(length), [128, 128, 256, 256, 384]);
    }

    #[test]
    fn a_message_that_is_too_long_for_the_old_encoding_is_refused() {
        let refused = encrypt(&keys(&KeyPair::generate()), &[0; 3967], Coding::Aesgcm);
        let text = "it has 3967 bytes; in aesgcm a push carries at most 3966";
        assert_eq!(refused.unwrap_err().to_string(), text);
    }

    #[test]
    fn a_message_for_another_subscription_or_a_damaged_one_is_refused() {
        let (pair, other) = (KeyPair::generate(), KeyPair::generate());
        let mut payload = encrypt(&keys(&pair), b"hello", Coding::Aes128gcm).unwrap();
        assert!(decrypt(&other, &AUTH, &payload).is_err());
        assert!(decrypt(&pair, b"another secret!!", &payload).is_err());
        let mut damaged = payload.data.to_vec();
        damaged[100] ^= 1;
        payload.data = damaged.into();
        assert!(decrypt(&pair, &AUTH, &payload).is_err());
        payload.data = b"short".as_slice().into();
        assert!(decrypt(&pair, &AUTH, &payload).is_err());
    }

    #[test]
    fn the_old_encoding_without_its_headers_is_refused() {
        let pair = KeyPair::generate();
        let mut payload = encrypt(&keys(&pair), b"hello", Coding::Aesgcm).unwrap();
        payload.encoding =
            Encoding::AesGcm { encryption: "salt=".into(), crypto_key: "p256ecdsa=x".into() };
        let error = decrypt(&pair, &AUTH, &payload).unwrap_err().to_string();
        assert_eq!(error, "the dh of Crypto-Key is missing or malformed");
    }

    #[test]
    fn a_parameter_is_found_among_others_with_or_without_quotes() {
        let header = "keyid=p256dh; DH=\"abc\", p256ecdsa=def=";
        assert_eq!(parameter(header, "dh"), Some("abc"));
        assert_eq!(parameter(header, "p256ecdsa"), Some("def="));
        assert_eq!(parameter(header, "salt"), None);
    }
}
