//! Signed texts that open something for a while. They are not stored.
//!
//! ```text
//! 0190c8f2….1796000000000.J0G…   43 characters
//!  │         │             └─ HMAC-SHA256 of the text before, in base64url
//!  │         └─ when it expires, in milliseconds since 1970
//!  └─ 32 random hex digits: the id
//! ```

use state_machine::{Span, Time};
use uuid::Uuid;

use super::derived::MacKeys;
use super::list::Keys;
use super::purpose::Purpose;

/// Maximum size of a pass, in bytes. The longest that is made has 97.
const PASS_BYTES_MAX: usize = 128;

/// Makes and checks the passes of one purpose.
pub struct Passes {
    keys: MacKeys,
    /// The time from the making of a pass to its end.
    lifetime: Span,
}

/// A pass that this installation made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pass {
    pub id: String,
    pub made: Time,
    pub expires: Time,
}

impl Passes {
    /// Derives the keys of a purpose from the crypto keys, once for all checks.
    pub fn derive(keys: &Keys, purpose: Purpose, lifetime: Span) -> Self {
        Self { keys: MacKeys::derive(keys.crypto_keys(), purpose, b""), lifetime }
    }

    pub fn mint(&self, now: Time) -> String {
        let (id, expires) = (Uuid::new_v4().simple(), now + self.lifetime);
        let signed = format!("{id}.{}", expires.0);
        format!("{signed}.{}", self.keys.sign(&signed))
    }

    /// Opens a pass that has not expired `now`. The signature is checked first: forged text is never parsed.
    pub fn open(&self, text: &str, now: Time) -> Option<Pass> {
        if text.len() > PASS_BYTES_MAX {
            return None;
        }
        let (signed, mac) = text.rsplit_once('.')?;
        let is_ours = self.keys.verify(signed, mac);
        let (id, expires) = signed.split_once('.').filter(|_| is_ours)?;
        let expires = Time(expires.parse().ok()?);
        let made = Time(expires.0.saturating_sub(self.lifetime.0));
        (now < expires).then(|| Pass { id: id.to_owned(), made, expires })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_796_000_000_000);
    const LIFETIME: Span = Span::from_secs(60);

    fn passes(purpose: Purpose) -> Passes {
        Passes::derive(&Keys::from_texts(&["A".repeat(43)]).unwrap(), purpose, LIFETIME)
    }

    #[test]
    fn a_pass_opens_for_its_purpose_until_it_expires() {
        let text = passes(Purpose::OperatorLink).mint(NOW);
        let pass = passes(Purpose::OperatorLink).open(&text, NOW).unwrap();
        assert_eq!((pass.id.len(), pass.made, pass.expires), (32, NOW, NOW + LIFETIME));
        assert!(passes(Purpose::OperatorLink).open(&text, NOW + Span(59_999)).is_some());
        assert_eq!(passes(Purpose::OperatorLink).open(&text, NOW + LIFETIME), None);
        assert_eq!(passes(Purpose::OperatorSession).open(&text, NOW), None);
        assert_ne!(passes(Purpose::OperatorLink).mint(NOW), text);
    }

    #[test]
    fn a_changed_pass_opens_nothing() {
        let text = passes(Purpose::OperatorLink).mint(NOW);
        let later = text.replacen(".1", ".2", 1);
        for wrong in ["", ".", "..", "x", &later, &text[1..], &text[..text.len() - 1]] {
            assert_eq!(passes(Purpose::OperatorLink).open(wrong, NOW), None, "{wrong}");
        }
        assert_eq!(
            passes(Purpose::OperatorLink).open(&format!("{text}{}", "a".repeat(200)), NOW),
            None
        );
    }
}
