//! VAPID tokens (RFC 8292), built from ECDSA signatures, so that tests can produce every fault.

use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

/// The owner of a VAPID key pair.
pub(crate) struct Signer(EcdsaKeyPair);

impl Signer {
    /// Generates a new key pair.
    pub(crate) fn new() -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING);
        Self(pair.expect("a key can be made"))
    }

    /// A new key pair, with its PKCS #8.
    pub(crate) fn with_pkcs8() -> (Self, Vec<u8>) {
        let pkcs8 =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
        let pkcs8 = pkcs8.expect("a key can be made").as_ref().to_vec();
        (Self::from_pkcs8(&pkcs8), pkcs8)
    }

    pub(crate) fn from_pkcs8(pkcs8: &[u8]) -> Self {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8);
        Self(pair.expect("it is a key pair"))
    }

    /// The public key as an uncompressed point.
    pub(crate) fn public(&self) -> &[u8] {
        self.0.public_key().as_ref()
    }

    /// The public key in base64url.
    pub(crate) fn key(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.public())
    }

    /// Signs a token with this header and these claims.
    pub(crate) fn token(&self, header: &Value, claims: &Value) -> String {
        let part = |json: &Value| URL_SAFE_NO_PAD.encode(json.to_string());
        let signed = format!("{}.{}", part(header), part(claims));
        let signature = self.0.sign(&SystemRandom::new(), signed.as_bytes());
        let signature = URL_SAFE_NO_PAD.encode(signature.expect("a text can be signed"));
        format!("{signed}.{signature}")
    }

    /// Signs a token with these claims and a valid header.
    pub(crate) fn token_with_claims(&self, claims: &Value) -> String {
        self.token(&json!({"typ": "JWT", "alg": "ES256"}), claims)
    }

    /// A valid `Authorization` header for the server at `origin`.
    pub(crate) fn authorization(&self, origin: &str) -> String {
        self.authorization_at(unix_now_s(), origin)
    }

    /// Like [`authorization`](Self::authorization), by a clock that shows `now_s`.
    pub(crate) fn authorization_at(&self, now_s: u64, origin: &str) -> String {
        let claims = json!({"aud": origin, "exp": now_s + 3600, "sub": "mailto:a@b.example"});
        self.vapid(&self.token_with_claims(&claims))
    }

    /// An `Authorization` header with this token and the public key.
    pub(crate) fn vapid(&self, token: &str) -> String {
        format!("vapid t={token}, k={}", self.key())
    }
}

/// The current time in seconds since the epoch.
pub(crate) fn unix_now_s() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    since_epoch.expect("the clock is past 1970").as_secs()
}
