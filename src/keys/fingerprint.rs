//! Marks of keys: what a store that nodes share keeps of their keys, so that a node with other keys is found out.
//!
//! A mark says which key it is of to whoever has the key, and nothing to anybody else: it is half of an
//! HMAC under a key that is derived for this alone.

use std::collections::BTreeSet;
use std::fmt::Write;

use aws_lc_rs::hmac;

use super::{CLUSTER_KEYS, CRYPTO_KEYS, CryptoKey, Keys, mac};

/// Each list of keys has marks of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyList {
    /// `crypto_keys`
    Crypto,
    /// `cluster_keys`
    Cluster,
}

/// How much of a signature a mark has: enough that no two keys ever have the same.
const MARK_BYTES: usize = 16;

const PURPOSE: &str = "key mark";

impl KeyList {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Crypto, Self::Cluster];

    /// Its name in `keys.toml`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Crypto => CRYPTO_KEYS,
            Self::Cluster => CLUSTER_KEYS,
        }
    }

    /// The marks of the keys in this list.
    pub fn marks(self, keys: &Keys) -> BTreeSet<String> {
        let keys = match self {
            Self::Crypto => keys.crypto_keys(),
            Self::Cluster => keys.cluster_keys(),
        };
        keys.iter().map(|key| self.mark(key)).collect()
    }

    /// Whether this is a mark of such a key.
    pub fn has(self, mark: &str) -> bool {
        mark.starts_with(self.prefix())
    }

    fn prefix(self) -> &'static str {
        match self {
            Self::Crypto => "crypto:",
            Self::Cluster => "cluster:",
        }
    }

    fn mark(self, key: &CryptoKey) -> String {
        let tag = hmac::sign(&mac::derive(key, PURPOSE, b""), self.prefix().as_bytes());
        let mut mark = self.prefix().to_owned();
        for byte in &tag.as_ref()[..MARK_BYTES] {
            write!(mark, "{byte:02x}").expect("a text takes whatever is written to it");
        }
        mark
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    const OTHER: &str = "_v38-_r5-Pf29fTz8vHw7-7t7Ovq6ejn5uXk4-Lh4N8=";

    fn marks(list: KeyList, crypto: &[&str], cluster: &[&str]) -> Vec<String> {
        let keys = Keys::from_texts(crypto).unwrap().with_cluster_texts(cluster).unwrap();
        list.marks(&keys).into_iter().collect()
    }

    /// Marks are compared across versions of this program.
    #[test]
    fn a_mark_stays_the_same_and_is_of_one_key_in_one_list() {
        let crypto = marks(KeyList::Crypto, &[KEY], &[KEY]);
        let cluster = marks(KeyList::Cluster, &[KEY], &[KEY]);
        assert_eq!(crypto, ["crypto:db689c9c81e8c89881f5d219e653c307"]);
        assert_eq!(cluster, ["cluster:75da0e0f25a7db65353e7c4de5b6174c"]);
        assert_ne!(marks(KeyList::Crypto, &[OTHER], &[KEY]), crypto);
        assert_eq!(marks(KeyList::Crypto, &[KEY, OTHER, KEY], &[KEY]).len(), 2);
        assert!(KeyList::Crypto.has(&crypto[0]) && !KeyList::Cluster.has(&crypto[0]));
    }

    #[test]
    fn a_list_without_keys_has_no_marks() {
        let keys = Keys::from_texts(&[KEY]).unwrap();
        assert!(KeyList::Cluster.marks(&keys).is_empty());
    }

    #[test]
    fn a_mark_gives_nothing_of_its_key_away() {
        let key = &Keys::from_texts(&[KEY]).unwrap();
        let hex: String =
            key.crypto_keys()[0].as_bytes().iter().map(|b| format!("{b:02x}")).collect();
        let mark = KeyList::Crypto.marks(key).pop_first().unwrap();
        assert!(!hex.contains(mark.trim_start_matches("crypto:")));
    }
}
