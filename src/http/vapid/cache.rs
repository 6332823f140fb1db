//! Tokens that were verified, until they expire or have to make room.

use std::hash::Hash;

use quick_cache::sync::Cache;
use quick_cache::{Equivalent, Weighter};

use super::{Credentials, VapidKey};

/// What an entry takes beside its token's text, about, in bytes.
const ENTRY_BYTES: u64 = 160;

/// What a usual entry takes, in bytes: sizes the tables.
const USUAL_ENTRY_BYTES: u64 = 512;

/// Verified tokens with their expiry, by key and whole text: two tokens are never taken for each
/// other, whatever their hashes. The hash is SipHash with a random key, so senders cannot steer it.
pub(super) struct Verified {
    cache: Cache<Remembered, f64, Bytes>,
}

#[derive(PartialEq, Eq, Hash)]
struct Remembered {
    key: VapidKey,
    token: Box<str>,
}

/// The same to look up by, without a copy.
#[derive(Hash)]
struct Asked<'a> {
    key: &'a VapidKey,
    token: &'a str,
}

#[derive(Clone)]
struct Bytes;

impl Verified {
    pub(super) fn new(max_bytes: u64) -> Self {
        let usual_entries = usize::try_from(max_bytes / USUAL_ENTRY_BYTES).unwrap_or(usize::MAX);
        Self { cache: Cache::with_weighter(usual_entries, max_bytes, Bytes) }
    }

    /// When a token that was verified with this key expires.
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

    pub(super) fn len(&self) -> usize {
        self.cache.len()
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
