//! VAPID tokens (RFC 8292), made here from nothing but ECDSA, so that every fault can be made too.

use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

/// The owner of a VAPID key.
pub(crate) struct Signer(EcdsaKeyPair);

impl Signer {
    /// One with a fresh key.
    pub(crate) fn new() -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING);
        Self(pair.expect("a key can be made"))
    }

    /// The public key's bytes.
    pub(crate) fn public(&self) -> &[u8] {
        self.0.public_key().as_ref()
    }

    /// The public key in base64url.
    pub(crate) fn key(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.public())
    }

    /// A token with these parts, signed.
    pub(crate) fn token(&self, header: &Value, claims: &Value) -> String {
        let part = |json: &Value| URL_SAFE_NO_PAD.encode(json.to_string());
        let signed = format!("{}.{}", part(header), part(claims));
        let signature = self.0.sign(&SystemRandom::new(), signed.as_bytes());
        let signature = URL_SAFE_NO_PAD.encode(signature.expect("a text can be signed"));
        format!("{signed}.{signature}")
    }

    /// A token with these claims and a header as it should be.
    pub(crate) fn claiming(&self, claims: &Value) -> String {
        self.token(&json!({"typ": "JWT", "alg": "ES256"}), claims)
    }

    /// A good `Authorization` for the server at `origin`.
    pub(crate) fn authorization(&self, origin: &str) -> String {
        let claims =
            json!({"aud": origin, "exp": unix_now_s() + 3600, "sub": "mailto:a@b.example"});
        self.vapid(&self.claiming(&claims))
    }

    /// `Authorization` with this token and our key.
    pub(crate) fn vapid(&self, token: &str) -> String {
        format!("vapid t={token}, k={}", self.key())
    }
}

/// Seconds since the epoch.
pub(crate) fn unix_now_s() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    since_epoch.expect("the clock is past 1970").as_secs()
}
