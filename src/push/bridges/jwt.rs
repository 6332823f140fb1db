//! Signed tokens (RFC 7519) in compact form, and the keys that sign them.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeyPair as RsaKey;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, RSA_PKCS1_SHA256};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

/// A private key and the algorithm it signs with (RFC 7518 §3.1).
pub(super) enum SigningKey {
    Rs256(RsaKey),
    Es256(EcdsaKeyPair),
}

impl SigningKey {
    /// Reads an RSA key of a PEM text.
    pub(super) fn rs256(pem: &[u8]) -> Result<Self, &'static str> {
        let key = PrivatePkcs8KeyDer::from_pem_slice(pem).ok();
        let key = key.and_then(|key| RsaKey::from_pkcs8(key.secret_pkcs8_der()).ok());
        key.map(Self::Rs256).ok_or("expected an RSA key of at least 2048 bits (PKCS #8) in PEM")
    }

    /// Reads a P-256 key of a PEM text.
    pub(super) fn es256(pem: &[u8]) -> Result<Self, &'static str> {
        let key = PrivatePkcs8KeyDer::from_pem_slice(pem).ok();
        let key = key.and_then(|key| {
            let der = key.secret_pkcs8_der();
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der).ok()
        });
        key.map(Self::Es256)
            .ok_or("expected a P-256 key (PKCS #8) in PEM, as in the .p8 file of Apple")
    }

    /// A token that expires when its claims state so.
    pub(super) fn sign(&self, key_id: &str, claims: &Value) -> String {
        let algorithm = match self {
            Self::Rs256(_) => "RS256",
            Self::Es256(_) => "ES256",
        };
        let header = json!({"alg": algorithm, "typ": "JWT", "kid": key_id});
        let encode = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let signed = format!("{}.{}", encode(&header), encode(claims));
        let signature = URL_SAFE_NO_PAD.encode(self.signature(signed.as_bytes()));
        format!("{signed}.{signature}")
    }

    fn signature(&self, text: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Rs256(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                let signed = key.sign(&RSA_PKCS1_SHA256, &random, text, &mut signature);
                signed.expect("the buffer has the length of the modulus");
                signature
            }
            Self::Es256(key) => {
                let signature = key.sign(&random, text).expect("a P-256 key signs any text");
                signature.as_ref().to_vec()
            }
        }
    }
}
