//! A cache of verified tokens.

use std::hash::Hash;

use quick_cache::sync::Cache;
use quick_cache::{Equivalent, Weighter};

use super::{Credentials, VapidKey};

/// Memory of an entry without the text of its token, about.
const ENTRY_BYTES: u64 = 160;

/// Memory of a typical entry, which determines the initial size of the tables.
const USUAL_ENTRY_BYTES: u64 = 512;

/// Expiry of verified tokens in seconds, by key and whole text, so that a hash collision confuses
/// no tokens. The hash is SipHash with a random key, so that senders cannot provoke collisions.
pub(super) struct Verified {
    pub(super) cache: Cache<Remembered, f64, Bytes>,
}

#[derive(PartialEq, Eq, Hash)]
pub(super) struct Remembered {
    key: VapidKey,
    token: Box<str>,
}

/// A borrowed [`Remembered`], for lookups without a copy.
#[derive(Hash)]
struct Asked<'a> {
    key: &'a VapidKey,
    token: &'a str,
}

#[derive(Clone)]
pub(super) struct Bytes;

impl Verified {
    pub(super) fn new(max_bytes: u64) -> Self {
        let usual_entries = usize::try_from(max_bytes / USUAL_ENTRY_BYTES).unwrap_or(usize::MAX);
        Self { cache: Cache::with_weighter(usual_entries, max_bytes, Bytes) }
    }

    /// The expiry of a token that was verified with this key.
    pub(super) fn expiry_of(&self, credentials: &Credentials<'_>) -> Option<f64> {
        self.cache.get(&Asked::from(credentials))
    }

    pub(super) fn remember(&self, credentials: &Credentials<'_>, expiry: f64) {
        let Credentials { token, key } = *credentials;
        self.cache.insert(Remembered { key, token: token.into() }, expiry);
    }

    pub(super) fn forget(&self, credentials: &Credentials<'_>) {
        self.cache.remove(&Asked::from(credentials));
    }
}

impl<'a> From<&'a Credentials<'_>> for Asked<'a> {
    fn from(credentials: &'a Credentials<'_>) -> Self {
        Self { key: &credentials.key, token: credentials.token }
    }
}

impl Equivalent<Remembered> for Asked<'_> {
    fn equivalent(&self, other: &Remembered) -> bool {
        *self.key == other.key && *self.token == *other.token
    }
}

impl Weighter<Remembered, f64> for Bytes {
    fn weight(&self, entry: &Remembered, _: &f64) -> u64 {
        ENTRY_BYTES + entry.token.len() as u64
    }
}
