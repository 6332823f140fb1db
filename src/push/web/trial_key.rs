//! The VAPID key of the server, with which its page signs the push that it sends itself (RFC 8292).
//!
//! Only subscriptions of the trial have this key, so a token permits nothing else. The key is in memory only, because a
//! trial subscribes anew.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use state_machine::Time;

/// Time for which a token is valid. An open page reads a new one whenever it reads the state of the server.
const VALID_S: u64 = 3600;

pub(super) struct TrialKey(EcdsaKeyPair);

impl TrialKey {
    pub(super) fn generate() -> Self {
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING);
        Self(key.expect("the system has random numbers"))
    }

    /// The public key in base64url, as browsers and the parameter `k` have it.
    pub(super) fn public(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0.public_key().as_ref())
    }

    /// A token for pushes to endpoints of this origin.
    pub(super) fn token(&self, origin: &str, now: Time) -> String {
        let encode = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let header = json!({"typ": "JWT", "alg": "ES256"});
        let claims = json!({"aud": origin, "exp": now.0 / 1000 + VALID_S, "sub": origin});
        let signed = format!("{}.{}", encode(&header), encode(&claims));
        let signature = self.0.sign(&SystemRandom::new(), signed.as_bytes());
        let signature = signature.expect("a P-256 key signs any text");
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }
}
