//! Signing pushes with a VAPID key (RFC 8292).

use serde::Serialize;
use url::Url;

use super::base64url::to_base64url;
use super::keypair::KeyPair;
use crate::system::jwt;

/// The claims of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Claims {
    /// The origin of the push service.
    pub aud: String,
    /// When it expires, in seconds since the Unix epoch: at most 24 hours from now.
    pub exp: u64,
    /// The contact of the application server: a `mailto:` or `https:` URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub: Option<String>,
}

/// The validity of tokens, in seconds; services accept up to 24 hours.
pub const VALID_S: u64 = 12 * 60 * 60;

impl Claims {
    /// Claims for pushes to an endpoint.
    pub fn for_endpoint(endpoint: &Url, now_s: u64, sub: Option<String>) -> Self {
        let aud = endpoint.origin().ascii_serialization();
        Self { aud, exp: now_s.saturating_add(VALID_S), sub }
    }
}

/// The value of the `Authorization` header (RFC 8292 §3).
pub fn authorization(key: &KeyPair, claims: &Claims) -> String {
    format!("vapid t={}, k={}", token(key, claims), to_base64url(key.public()))
}

/// A signed JWT (RFC 8292 §2).
fn token(key: &KeyPair, claims: &Claims) -> String {
    let claims = serde_json::to_string(claims).expect("texts and a number can be written as JSON");
    jwt::es256(&key.signing(), r#"{"typ":"JWT","alg":"ES256"}"#, &claims)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dev::base64url::from_base64url;
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};

    /// The example of RFC 8292 §2.4.
    const RFC_TOKEN: &str = "eyJ0eXAiOiJKV1QiLCJhbGciOiJFUzI1NiJ9.eyJhdWQiOiJodHRwczovL3B1c2guZXhhb\
        XBsZS5uZXQiLCJleHAiOjE0NTM1MjM3NjgsInN1YiI6Im1haWx0bzpwdXNoQGV4YW1wbGUuY29tIn0.i3CYb7t4xfxC\
        DquptFOepC9GAu_HLGkMlMuCGSK2rpiUfnK9ojFwDXb1JrErtmysazNjjvW2L9OkSSHzvoD1oA";
    const RFC_KEY: &str =
        "BA1Hxzyi1RUM1b5wjxsn7nGxAszw2u61m164i3MrAIxHF6YK5h4SDYic-dRuU_RCPCfA5aq9ojSwk5Y2EmClBPs";

    fn is_signed(token: &str, public: &[u8]) -> bool {
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, public);
        key.verify(signed.as_bytes(), &from_base64url(signature).unwrap()).is_ok()
    }

    #[test]
    fn a_token_is_that_of_rfc_8292_but_for_the_random_signature() {
        let claims = Claims {
            aud: "https://push.example.net".into(),
            exp: 1_453_523_768,
            sub: Some("mailto:push@example.com".into()),
        };
        let key = KeyPair::generate();
        let token = token(&key, &claims);
        let unsigned = |token: &str| token.rsplit_once('.').unwrap().0.to_owned();
        assert_eq!(unsigned(&token), unsigned(RFC_TOKEN));
        assert!(is_signed(&token, key.public()));
        assert!(is_signed(RFC_TOKEN, &from_base64url(RFC_KEY).unwrap()));
        assert!(!is_signed(&token, KeyPair::generate().public()));
    }

    #[test]
    fn the_header_has_the_token_and_the_key() {
        let key = KeyPair::generate();
        let claims = Claims { aud: "http://a".into(), exp: 1, sub: None };
        let header = authorization(&key, &claims);
        let (token, public) = header.strip_prefix("vapid t=").unwrap().split_once(", k=").unwrap();
        assert_eq!(from_base64url(public).unwrap(), key.public());
        let claims = from_base64url(token.split('.').nth(1).unwrap()).unwrap();
        assert_eq!(claims, br#"{"aud":"http://a","exp":1}"#);
    }

    #[test]
    fn a_token_is_for_the_endpoints_origin_and_half_a_day() {
        for (endpoint, aud) in [
            ("https://push.example.net:443/wpush/abc", "https://push.example.net"),
            ("http://127.0.0.1:8080/wpush/abc", "http://127.0.0.1:8080"),
        ] {
            let claims = Claims::for_endpoint(&Url::parse(endpoint).unwrap(), 1000, None);
            assert_eq!((claims.aud.as_str(), claims.exp), (aud, 44_200));
        }
    }
}
