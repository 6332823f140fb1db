//! Signed tokens (RFC 7519) in compact form, and the keys that sign them.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeyPair as RsaKey;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, RSA_PKCS1_SHA256};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;

/// A private key and the algorithm it signs with (RFC 7518 §3.1).
pub enum SigningKey {
    Rs256(RsaKey),
    Es256(EcdsaKeyPair),
}

impl SigningKey {
    /// Reads an RSA key of a PEM text.
    pub fn rs256(pem: &[u8]) -> Result<Self, &'static str> {
        let key = PrivatePkcs8KeyDer::from_pem_slice(pem).ok();
        let key = key.and_then(|key| RsaKey::from_pkcs8(key.secret_pkcs8_der()).ok());
        key.map(Self::Rs256).ok_or("expected an RSA key of at least 2048 bits (PKCS #8) in PEM")
    }

    /// Reads a P-256 key of a PEM text.
    pub fn es256(pem: &[u8]) -> Result<Self, &'static str> {
        let key = PrivatePkcs8KeyDer::from_pem_slice(pem).ok();
        let key = key.and_then(|key| {
            let der = key.secret_pkcs8_der();
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der).ok()
        });
        key.map(Self::Es256)
            .ok_or("expected a P-256 key (PKCS #8) in PEM, as in the .p8 file of Apple")
    }

    /// A token of these claims that names the key. Services of platforms want it so.
    pub fn sign(&self, key_id: &str, claims: &str) -> String {
        let header = |alg| json!({"alg": alg, "typ": "JWT", "kid": key_id}).to_string();
        match self {
            Self::Es256(key) => es256(key, &header("ES256"), claims),
            Self::Rs256(key) => token(&header("RS256"), claims, |text| {
                let mut signature = vec![0; key.public_modulus_len()];
                let random = SystemRandom::new();
                key.sign(&RSA_PKCS1_SHA256, &random, text, &mut signature)
                    .expect("the buffer has the length of the modulus");
                signature
            }),
        }
    }
}

/// A token of a P-256 key with this header, whose `alg` is ES256. Header and claims are JSON.
pub fn es256(key: &EcdsaKeyPair, header: &str, claims: &str) -> String {
    token(header, claims, |text| {
        let signature = key.sign(&SystemRandom::new(), text).expect("a P-256 key signs any text");
        signature.as_ref().to_vec()
    })
}

fn token(header: &str, claims: &str, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> String {
    let [header, claims] = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part));
    let signed = format!("{header}.{claims}");
    let signature = URL_SAFE_NO_PAD.encode(sign(signed.as_bytes()));
    format!("{signed}.{signature}")
}
