//! P-256 key pairs: a subscription's, a VAPID key.

use std::fmt;

use aws_lc_rs::agreement::{self, ECDH_P256, ParsedPublicKey, PrivateKey};
use aws_lc_rs::encoding::{AsBigEndian, EcPrivateKeyBin};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};

/// Bytes of a public key: an uncompressed point.
pub const PUBLIC_BYTES: usize = 65;

/// A P-256 key pair.
pub struct KeyPair {
    private: PrivateKey,
    public: [u8; PUBLIC_BYTES],
}

impl KeyPair {
    /// A fresh random pair.
    pub fn generate() -> Self {
        let private = PrivateKey::generate(&ECDH_P256).expect("the system gives random bytes");
        Self::new(private)
    }

    /// From the private key's 32 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        PrivateKey::from_private_key(&ECDH_P256, bytes).ok().map(Self::new)
    }

    /// From PKCS#8 or from the older SEC 1 form that `openssl ecparam -genkey` writes.
    pub fn from_der(der: &[u8]) -> Option<Self> {
        PrivateKey::from_private_key_der(&ECDH_P256, der).ok().map(Self::new)
    }

    fn new(private: PrivateKey) -> Self {
        let point = private.compute_public_key().expect("a P-256 private key has a public key");
        let public = point.as_ref().try_into().expect("an uncompressed P-256 point has 65 bytes");
        Self { private, public }
    }

    pub fn public(&self) -> &[u8; PUBLIC_BYTES] {
        &self.public
    }

    /// The private key's 32 bytes.
    pub fn private_bytes(&self) -> Vec<u8> {
        let bytes: EcPrivateKeyBin<'_> =
            self.private.as_be_bytes().expect("a P-256 private key has bytes");
        bytes.as_ref().to_vec()
    }

    /// The secret shared with the owner of `public`; none if that is not a public key.
    pub fn agree(&self, public: &[u8]) -> Option<Vec<u8>> {
        let peer = agreement::UnparsedPublicKey::new(&ECDH_P256, public);
        agreement::agree(&self.private, peer, (), |secret| Ok(secret.to_vec())).ok()
    }

    /// The same pair for ECDSA signatures (ES256).
    pub fn signing(&self) -> EcdsaKeyPair {
        EcdsaKeyPair::from_private_key_and_public_key(
            &ECDSA_P256_SHA256_FIXED_SIGNING,
            &self.private_bytes(),
            &self.public,
        )
        .expect("the two keys are a pair")
    }
}

impl From<&KeyPair> for Vec<u8> {
    fn from(pair: &KeyPair) -> Self {
        pair.private_bytes()
    }
}

impl TryFrom<Vec<u8>> for KeyPair {
    type Error = ();

    fn try_from(bytes: Vec<u8>) -> Result<Self, ()> {
        Self::from_bytes(&bytes).ok_or(())
    }
}

/// Only the public key: the private one belongs in no log.
impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyPair({})", super::base64url::to_base64url(&self.public))
    }
}

/// Whether these bytes are a P-256 public key, with a point that lies on the curve.
pub fn is_public(bytes: &[u8]) -> bool {
    let unparsed = agreement::UnparsedPublicKey::new(&ECDH_P256, bytes);
    bytes.len() == PUBLIC_BYTES
        && ParsedPublicKey::try_from(unparsed).is_ok_and(|key| *key.alg() == ECDH_P256)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_restored_from_its_private_bytes() {
        let pair = KeyPair::generate();
        let restored = KeyPair::from_bytes(&pair.private_bytes()).unwrap();
        assert_eq!(restored.public(), pair.public());
        assert!(KeyPair::from_bytes(&[0; 32]).is_none());
        assert!(KeyPair::from_bytes(&[1; 31]).is_none());
    }

    #[test]
    fn two_pairs_agree_on_a_secret_and_refuse_invalid_keys() {
        let (one, other) = (KeyPair::generate(), KeyPair::generate());
        assert_eq!(one.agree(other.public()), other.agree(one.public()));
        assert!(one.agree(other.public()).is_some());
        assert_eq!(one.agree(&[4; 65]), None);
    }

    #[test]
    fn a_public_key_is_a_point_on_the_curve() {
        assert!(is_public(KeyPair::generate().public()));
        assert!(!is_public(&[4; 65]));
        assert!(!is_public(&[]));
    }
}
