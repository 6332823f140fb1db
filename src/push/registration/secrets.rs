//! The secrets of bridged user agents, made as autopush makes them, so that its registrations stay valid.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac::{self, HMAC_SHA256};
use state_machine::Uaid;

use crate::settings::keys::Key;

/// Makes and verifies the secrets: HMAC-SHA256 of the uaid as 32 hex digits, itself as 64 hex digits.
pub struct RegistrationSecrets(Vec<hmac::Key>);

impl RegistrationSecrets {
    /// Takes a list that is not empty: the first key makes secrets, all verify them.
    pub fn new(keys: &[Key]) -> Self {
        Self(keys.iter().map(|key| hmac::Key::new(HMAC_SHA256, key.as_bytes())).collect())
    }

    /// The secret of an agent.
    pub(super) fn make(&self, uaid: Uaid) -> String {
        secret(&self.0[0], uaid)
    }

    /// Whether one of the keys made this secret of the agent. Compares in constant time with each key.
    pub(super) fn verify(&self, uaid: Uaid, text: &str) -> bool {
        let is_of = |key: &hmac::Key| {
            verify_slices_are_equal(secret(key, uaid).as_bytes(), text.as_bytes()).is_ok()
        };
        self.0.iter().any(is_of)
    }
}

fn secret(key: &hmac::Key, uaid: Uaid) -> String {
    let tag = hmac::sign(key, uaid.to_string().as_bytes());
    tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::keys::Keys;

    /// A key, a uaid and a secret of the Python autopush, as a test of autopush-rs has them.
    const KEY: &str = "HJVPy4ZwF4Yz_JdvXTL8hRcwIhv742vC60Tg5Ycrvw8=";
    const UAID: &str = "729e5104f5f04abc9196085340317dea";
    const SECRET: &str = "f694963453adf5dedcc379bbdd6900d692b6e09f1c91f44169bfcd2f941bf36c";
    const OTHER: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    fn secrets(keys: &[&str]) -> RegistrationSecrets {
        let crypto = Keys::from_texts(&[OTHER]).unwrap();
        RegistrationSecrets::new(crypto.with_auth_texts(keys).unwrap().auth_keys())
    }

    fn uaid() -> Uaid {
        Uaid::parse(UAID).unwrap()
    }

    #[test]
    fn a_secret_is_the_one_that_autopush_makes() {
        assert_eq!(secrets(&[KEY]).make(uaid()), SECRET);
        assert!(secrets(&[KEY]).verify(uaid(), SECRET));
    }

    #[test]
    fn the_first_key_makes_secrets_and_all_verify_them() {
        let after = secrets(&[OTHER, KEY]);
        assert!(after.verify(uaid(), SECRET));
        let new = after.make(uaid());
        assert!(after.verify(uaid(), &new));
        assert!(!secrets(&[KEY]).verify(uaid(), &new));
    }

    #[test]
    fn another_agent_another_key_and_a_changed_secret_are_refused() {
        let ours = secrets(&[KEY]);
        assert!(!ours.verify(Uaid([7; 16]), SECRET));
        assert!(!secrets(&[OTHER]).verify(uaid(), SECRET));
        let (upper, longer) = (SECRET.to_uppercase(), format!("{SECRET}0"));
        for wrong in ["", &SECRET[1..], &upper, &longer, &SECRET.replace('f', "0")] {
            assert!(!ours.verify(uaid(), wrong), "{wrong}");
        }
    }
}
