//! What settings change of the rules of RFC 8030 and RFC 8291 for a push.

use actix_web::http::header::HeaderMap;
use bytes::Bytes;
use state_machine::{Encoding, Payload, Span};

use super::{DH, HeaderError, PushHeaders, payload, read_topic, read_urgency, values};
use crate::push::vapid::VapidKey;

/// The length of salt, record size and key id length (RFC 8188 §2.1).
const FIXED_BYTES: usize = 16 + 4 + 1;

/// The length of a public key on P-256, which is the key id (RFC 8291 §4).
const KEY_BYTES: usize = 65;

/// The first byte of a public key that is not compressed.
const UNCOMPRESSED: u8 = 4;

/// The shortest record: a delimiter and a tag of AES-GCM. A record size is above that (RFC 8188 §2).
const RECORD_BYTES_MIN: usize = 17;

/// Both are off in a server without settings.
#[derive(Debug, Clone, Copy, Default)]
pub struct PushRules {
    /// Whether a push needs neither a TTL nor a Content-Encoding (`lenient_senders`).
    pub lenient: bool,
    /// Whether a body in aes128gcm must begin as RFC 8291 requires (`payload_header_required`).
    pub payload_header_required: bool,
}

impl PushRules {
    /// Without a TTL, a lenient server keeps the message as long as any.
    pub fn headers(self, headers: &HeaderMap, ttl_max: Span) -> Result<PushHeaders, HeaderError> {
        match PushHeaders::read(headers, ttl_max) {
            Err(HeaderError::TtlMissing) if self.lenient => Ok(PushHeaders {
                ttl: ttl_max,
                topic: read_topic(headers)?,
                urgency: read_urgency(headers)?,
            }),
            read => read,
        }
    }

    /// Without an encoding, a lenient server takes the body for aes128gcm, as apps of UnifiedPush do. The key of the
    /// message must not be the VAPID key of the push (RFC 8292 §3.2).
    pub fn payload(
        self,
        headers: &HeaderMap,
        body: Bytes,
        vapid_key: Option<&VapidKey>,
    ) -> Result<Option<Payload>, HeaderError> {
        let read = match payload(headers, body.clone()) {
            Err(HeaderError::EncodingMissing) if self.lenient => {
                Some(Payload { data: body, encoding: Encoding::Aes128Gcm })
            }
            read => read?,
        };
        match (read.as_ref(), vapid_key) {
            (Some(Payload { encoding: Encoding::AesGcm { crypto_key, .. }, .. }), Some(key)) => {
                check_dh(crypto_key, key)?;
            }
            (Some(Payload { encoding: Encoding::Aes128Gcm, data }), key)
                if self.payload_header_required =>
            {
                check_header(data, key)?;
            }
            _ => {}
        }
        Ok(read)
    }
}

fn check_dh(crypto_key: &str, vapid_key: &VapidKey) -> Result<(), HeaderError> {
    let is_reused = |dh| VapidKey::parse(dh).is_ok_and(|dh| dh == *vapid_key);
    match values(crypto_key, "dh").any(is_reused) {
        true => Err(HeaderError::VapidKeyReused(DH)),
        false => Ok(()),
    }
}

fn check_header(body: &[u8], vapid_key: Option<&VapidKey>) -> Result<(), HeaderError> {
    let key_id = key_id(body).ok_or(HeaderError::NoHeaderInBody)?;
    match vapid_key.is_some_and(|key| key.as_bytes() == key_id) {
        true => Err(HeaderError::VapidKeyReused("key in the header of the body")),
        false => Ok(()),
    }
}

/// The public key in the header of a body; none without a header as RFC 8291 describes it.
fn key_id(body: &[u8]) -> Option<&[u8]> {
    let (fixed, rest) = body.split_at_checked(FIXED_BYTES)?;
    let (key, record) = rest.split_at_checked(KEY_BYTES)?;
    let record_bytes = u32::from_be_bytes([fixed[16], fixed[17], fixed[18], fixed[19]]);
    let is_header = record_bytes as usize > RECORD_BYTES_MIN
        && usize::from(fixed[20]) == KEY_BYTES
        && key[0] == UNCOMPRESSED
        && record.len() >= RECORD_BYTES_MIN;
    is_header.then_some(key)
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::{HeaderName, HeaderValue};
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;

    const LENIENT: PushRules = PushRules { lenient: true, payload_header_required: false };
    const STRICT: PushRules = PushRules { lenient: false, payload_header_required: true };
    const TTL_MAX: Span = Span::from_secs(100);

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let line = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        lines.iter().map(line).collect()
    }

    /// The shortest body of RFC 8291, changed at one place.
    fn body(place: usize, byte: u8) -> Bytes {
        let fixed = [&[7; 16][..], &[0, 0, 16, 0], &[65], &[4], &[9; 64], &[1; 17]];
        let mut body = fixed.concat();
        body[place] = byte;
        body.into()
    }

    #[test]
    fn a_push_without_ttl_and_encoding_is_taken_by_a_lenient_server_only() {
        let none = headers(&[]);
        assert_eq!(LENIENT.headers(&none, TTL_MAX).unwrap().ttl, TTL_MAX);
        let refused = PushRules::default().headers(&none, TTL_MAX);
        assert_eq!(refused, Err(HeaderError::TtlMissing));
        let wrong = headers(&[("ttl", "soon")]);
        assert_eq!(LENIENT.headers(&wrong, TTL_MAX), Err(HeaderError::TtlInvalid));
        let wrong = headers(&[("urgency", "soon")]);
        assert_eq!(LENIENT.headers(&wrong, TTL_MAX), Err(HeaderError::Urgency));

        let taken = LENIENT.payload(&none, "plain".into(), None).unwrap().unwrap();
        assert_eq!(taken.encoding, Encoding::Aes128Gcm);
        let refused = PushRules::default().payload(&none, "plain".into(), None);
        assert_eq!(refused, Err(HeaderError::EncodingMissing));
        let wrong = headers(&[("content-encoding", "gzip")]);
        let refused = LENIENT.payload(&wrong, "plain".into(), None);
        assert_eq!(refused, Err(HeaderError::EncodingUnknown));
    }

    #[test]
    fn a_body_is_compared_with_rfc_8291_by_the_setting_only() {
        let encoding = headers(&[("content-encoding", "aes128gcm")]);
        let whole = body(0, 7);
        assert!(STRICT.payload(&encoding, whole.clone(), None).is_ok());
        assert_eq!(STRICT.payload(&encoding, Bytes::new(), None), Ok(None));
        for (wrong, what) in [
            (whole.slice(..whole.len() - 1), "too short for a record"),
            (whole.slice(..20), "too short for the header"),
            (body(18, 0), "a record size of 0"),
            (body(20, 64), "another length of the key id"),
            (body(21, 2), "a compressed key"),
            (Bytes::from_static(b"{\"notification\":{}}"), "plain JSON"),
        ] {
            let refused = STRICT.payload(&encoding, wrong.clone(), None);
            assert_eq!(refused, Err(HeaderError::NoHeaderInBody), "{what}");
            assert!(PushRules::default().payload(&encoding, wrong, None).is_ok(), "{what}");
        }
    }

    #[test]
    fn the_key_of_a_message_that_is_the_vapid_key_is_refused() {
        let point = |byte| [&[UNCOMPRESSED][..], &[byte; 64]].concat();
        let text = |byte| URL_SAFE_NO_PAD.encode(point(byte));
        let (key, other) = (VapidKey::parse(&text(9)).unwrap(), VapidKey::parse(&text(8)).unwrap());
        let none = PushRules::default();
        let aesgcm = |keys: &str| {
            let mut map = headers(&[("content-encoding", "aesgcm"), ("encryption", "salt=c2FsdA")]);
            map.insert(HeaderName::from_static("crypto-key"), keys.parse().unwrap());
            map
        };
        for keys in [
            format!("dh={}", text(9)),
            format!("p256ecdsa={};dh={}", text(9), text(9)),
            format!("keyid=a;dh=\"{}=\"", text(9)),
        ] {
            let refused = none.payload(&aesgcm(&keys), "x".into(), Some(&key));
            assert_eq!(refused, Err(HeaderError::VapidKeyReused(DH)), "{keys}");
            for different in [Some(&other), None] {
                assert!(none.payload(&aesgcm(&keys), "x".into(), different).is_ok(), "{keys}");
            }
        }
        let encoding = headers(&[("content-encoding", "aes128gcm")]);
        let in_body = HeaderError::VapidKeyReused("key in the header of the body");
        assert_eq!(STRICT.payload(&encoding, body(0, 7), Some(&key)), Err(in_body));
        assert!(STRICT.payload(&encoding, body(0, 7), Some(&other)).is_ok());
        assert!(none.payload(&encoding, body(0, 7), Some(&key)).is_ok());
    }
}
