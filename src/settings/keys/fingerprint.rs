//! Fingerprints of keys, kept in the shared store, by which a node with other keys is detected.
//!
//! A fingerprint identifies its key to a holder of that key, and reveals nothing else: it is half
//! of an HMAC under a key that is derived for this purpose alone.

use std::collections::BTreeSet;

use aws_lc_rs::hmac::{self, HMAC_SHA256};

use super::list::{Key, KeyList, Keys};
use super::purpose::Purpose;

impl KeyList {
    pub fn fingerprints(self, keys: &Keys) -> BTreeSet<String> {
        let keys = match self {
            Self::Crypto => keys.crypto_keys(),
            Self::Cluster => keys.cluster_keys(),
            Self::Auth => keys.auth_keys(),
        };
        keys.iter().map(|key| self.fingerprint(key)).collect()
    }

    /// Whether this is a fingerprint of a key in this list.
    pub fn has(self, fingerprint: &str) -> bool {
        fingerprint.starts_with(self.prefix())
    }

    fn prefix(self) -> &'static str {
        match self {
            Self::Crypto => "crypto:",
            Self::Cluster => "cluster:",
            Self::Auth => "auth:",
        }
    }

    fn fingerprint(self, key: &Key) -> String {
        let key = key.derive(Purpose::Fingerprint, b"", HMAC_SHA256);
        let tag = hmac::sign(&key, self.prefix().as_bytes());
        let half = tag.as_ref().first_chunk().expect("SHA-256 gives 32 bytes");
        // Enough that no two keys have the same fingerprint.
        format!("{}{:032x}", self.prefix(), u128::from_be_bytes(*half))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    const OTHER: &str = "_v38-_r5-Pf29fTz8vHw7-7t7Ovq6ejn5uXk4-Lh4N8=";

    fn fingerprints(list: KeyList, crypto: &[&str], cluster: &[&str]) -> Vec<String> {
        let keys = Keys::from_texts(crypto).unwrap().with_cluster_texts(cluster).unwrap();
        list.fingerprints(&keys).into_iter().collect()
    }

    /// Fingerprints are compared across versions of this program.
    #[test]
    fn a_fingerprint_is_stable_and_belongs_to_one_key_of_one_list() {
        let crypto = fingerprints(KeyList::Crypto, &[KEY], &[KEY]);
        let cluster = fingerprints(KeyList::Cluster, &[KEY], &[KEY]);
        assert_eq!(crypto, ["crypto:db689c9c81e8c89881f5d219e653c307"]);
        assert_eq!(cluster, ["cluster:75da0e0f25a7db65353e7c4de5b6174c"]);
        let keys = Keys::from_texts(&[KEY]).unwrap().with_auth_texts(&[KEY]).unwrap();
        let auth = KeyList::Auth.fingerprints(&keys);
        assert_eq!(auth, ["auth:3987163ea113335a0fd9538bae70d6f0".to_owned()].into());
        assert_ne!(fingerprints(KeyList::Crypto, &[OTHER], &[KEY]), crypto);
        assert_eq!(fingerprints(KeyList::Crypto, &[KEY, OTHER, KEY], &[KEY]).len(), 2);
        assert!(KeyList::Crypto.has(&crypto[0]) && !KeyList::Cluster.has(&crypto[0]));
    }

    #[test]
    fn a_list_without_keys_has_no_fingerprints() {
        let keys = Keys::from_texts(&[KEY]).unwrap();
        assert!(KeyList::Cluster.fingerprints(&keys).is_empty());
    }

    #[test]
    fn a_fingerprint_does_not_contain_its_key() {
        let key = &Keys::from_texts(&[KEY]).unwrap();
        let hex: String =
            key.crypto_keys()[0].as_bytes().iter().map(|b| format!("{b:02x}")).collect();
        let fingerprint = KeyList::Crypto.fingerprints(key).pop_first().unwrap();
        assert!(!hex.contains(fingerprint.trim_start_matches("crypto:")));
    }
}
