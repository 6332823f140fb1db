//! A VAPID header, which is signed once and reused, as senders do.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

const VALIDITY: Duration = Duration::from_secs(12 * 60 * 60);

/// The header of an application server with a new VAPID key, for the server at `origin`.
pub(crate) fn authorization(origin: &str) -> String {
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING);
    let pair = pair.expect("a key can be made");
    let expiry = SystemTime::now() + VALIDITY;
    let expiry_s = expiry.duration_since(UNIX_EPOCH).expect("the clock is past 1970").as_secs();
    let claims = json!({"aud": origin, "exp": expiry_s, "sub": "mailto:a@b.example"});
    let part = |json: Value| URL_SAFE_NO_PAD.encode(json.to_string());
    let signed = format!("{}.{}", part(json!({"typ": "JWT", "alg": "ES256"})), part(claims));
    let signature = pair.sign(&SystemRandom::new(), signed.as_bytes());
    let signature = URL_SAFE_NO_PAD.encode(signature.expect("a text can be signed"));
    format!("vapid t={signed}.{signature}, k={}", URL_SAFE_NO_PAD.encode(pair.public_key()))
}
