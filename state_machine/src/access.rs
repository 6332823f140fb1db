//! The access tokens of a server: who may connect, and whose endpoints are gone.
//!
//! They are a reserved feed, which every node follows. The uaid of an agent names the token that the agent connected
//! with, so no record has to be read to know whom a token belongs to.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

pub use crate::feed::reserved::{ACCESS_TOKENS_MAX, GRANT_BYTES_MAX};

use crate::feed::{FeedKey, FeedPage, FeedSyncId, FeedValue};
use crate::ids::Uaid;
use crate::time::Time;

/// The maximum length of a token's name.
pub const NAME_CHARS_MAX: usize = 64;

/// The maximum of [`AccessGrant::agents_max`], in user agents.
pub const AGENTS_MAX: u32 = 1_000_000;

/// The id of an access token, which is no secret: the first bytes of the uaids of its agents.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccessId(pub [u8; 6]);

/// What a token allows, as the feed stores it. The token itself is not stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessGrant {
    pub name: String,
    /// The SHA-256 of the token, in hex.
    pub sha256: String,
    /// In seconds since 1970.
    pub created_s: u64,
    /// When the token ends by itself, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_s: Option<u64>,
    /// Agents that may be connected to one node at once; 0 is no limit.
    #[serde(default)]
    pub agents_max: u32,
    /// When it was revoked, in seconds since 1970. A revoked token stays, so that its endpoints are known to be gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_s: Option<u64>,
}

/// All tokens, up to a number of their feed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessTable {
    grants: BTreeMap<AccessId, AccessGrant>,
    by_sha256: BTreeMap<String, AccessId>,
    cursor: FeedSyncId,
}

impl AccessTable {
    /// Applies the updates of a page of the feed. Nothing is ever deleted from it, and an entry that cannot be read
    /// leaves the one before it. Returns the ids whose token was replaced by another one.
    pub fn apply(&mut self, page: FeedPage) -> Vec<AccessId> {
        let mut replaced = Vec::new();
        for update in page.updates {
            let grant = update.value.and_then(|value| serde_json::from_str(value.as_str()).ok());
            let (Ok(id), Some(grant)) = (AccessId::parse(update.key.as_str()), grant) else {
                continue;
            };
            if self.insert(id, grant) {
                replaced.push(id);
            }
        }
        self.cursor = self.cursor.max(page.cursor);
        replaced
    }

    /// Returns whether the id had another token, which is valid no longer.
    fn insert(&mut self, id: AccessId, grant: AccessGrant) -> bool {
        let before = self.grants.insert(id, grant.clone());
        let former = before.map(|before| before.sha256).filter(|former| *former != grant.sha256);
        if let Some(former) = &former {
            self.by_sha256.remove(former);
        }
        self.by_sha256.insert(grant.sha256, id);
        former.is_some()
    }

    /// The number up to which the feed was applied.
    pub fn cursor(&self) -> FeedSyncId {
        self.cursor
    }

    /// The token with this SHA-256 in hex, if it is valid now. The time of the lookup depends on the hash of
    /// a guess, which does not lead to a better guess.
    pub fn find(&self, sha256: &str, now: Time) -> Option<(AccessId, &AccessGrant)> {
        let id = *self.by_sha256.get(sha256)?;
        let grant = self.grants.get(&id)?;
        (!grant.has_ended(now)).then_some((id, grant))
    }

    pub fn get(&self, id: AccessId) -> Option<&AccessGrant> {
        self.grants.get(&id)
    }

    /// Whether the token was revoked or has expired. False for one that this node does not know yet: it may have been
    /// added on another node, and the end of a subscription is final.
    pub fn has_ended(&self, id: AccessId, now: Time) -> bool {
        self.grants.get(&id).is_some_and(|grant| grant.has_ended(now))
    }

    /// When the next token expires after `now`.
    pub fn next_expiry(&self, now: Time) -> Option<Time> {
        let ends = self.grants.values().filter_map(AccessGrant::expires);
        ends.filter(|end| *end > now).min()
    }

    /// All tokens in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (AccessId, &AccessGrant)> {
        self.grants.iter().map(|(id, grant)| (*id, grant))
    }
}

impl AccessGrant {
    fn expires(&self) -> Option<Time> {
        self.expires_s.map(|end| Time(end.saturating_mul(1000)))
    }

    pub fn has_ended(&self, now: Time) -> bool {
        self.revoked_s.is_some() || self.expires().is_some_and(|end| end <= now)
    }

    /// The entry of the feed.
    pub fn to_value(&self) -> FeedValue {
        let text = serde_json::to_string(self).expect("all of its keys are text");
        FeedValue::parse(&text).expect("a name is short")
    }
}

/// Whether a token may have this name: 1 to [`NAME_CHARS_MAX`] of `a-z A-Z 0-9 - _ . @`.
pub fn is_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
    (1..=NAME_CHARS_MAX).contains(&text.len()) && text.bytes().all(fits)
}

impl AccessId {
    /// Parses 12 hex digits.
    pub fn parse(text: &str) -> Result<Self, NotAnAccessId> {
        let is_hex = text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u64::from_str_radix(text, 16).ok().filter(|_| is_hex).ok_or(NotAnAccessId)?;
        let [_, _, id @ ..] = number.to_be_bytes();
        Ok(Self(id))
    }

    /// Its key in the feed.
    pub fn to_key(self) -> FeedKey {
        FeedKey::parse(&self.to_string()).expect("it is short")
    }
}

/// The text is not 12 hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected 12 hex digits")]
pub struct NotAnAccessId;

impl fmt::Display for AccessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for AccessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Uaid {
    /// The uaid of an agent with this access token, from 16 random bytes: a UUID of version 8 (RFC 9562 §5.8) whose
    /// first 6 bytes are the token's id. 74 random bits remain, and the token is needed too. Every other uaid that this
    /// server assigns is of version 4.
    pub fn with_access(random: [u8; 16], AccessId(id): AccessId) -> Self {
        let mut bytes = random;
        bytes[..6].copy_from_slice(&id);
        bytes[6] = 0x80 | (bytes[6] & 0x0f);
        bytes[8] = 0x80 | (bytes[8] & 0x3f);
        Self(bytes)
    }

    /// The access token that the agent first connected with; none on an open server.
    pub fn access(self) -> Option<AccessId> {
        let [a, b, c, d, e, f, version, _, variant, ..] = self.0;
        (version >> 4 == 8 && variant >> 6 == 2).then_some(AccessId([a, b, c, d, e, f]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::{Update, Version};

    const ID: AccessId = AccessId([1, 2, 3, 0xfd, 0xfe, 0xff]);

    fn grant() -> AccessGrant {
        AccessGrant {
            name: "alice".into(),
            sha256: "ab".into(),
            created_s: 5,
            expires_s: None,
            agents_max: 3,
            revoked_s: None,
        }
    }

    fn page(number: u64, key: &str, value: Option<&str>) -> FeedPage {
        let update = Update {
            feed_sync_id: FeedSyncId(number),
            key: FeedKey::parse(key).unwrap(),
            version: Version(1),
            value: value.map(|value| FeedValue::parse(value).unwrap()),
        };
        FeedPage {
            updates: vec![update],
            cursor: FeedSyncId(number),
            head: FeedSyncId(number),
            ..FeedPage::default()
        }
    }

    fn with(grant: &AccessGrant) -> AccessTable {
        let mut table = AccessTable::default();
        table.apply(page(1, &ID.to_string(), Some(grant.to_value().as_str())));
        table
    }

    #[test]
    fn a_uaid_names_its_token_and_a_random_one_names_none() {
        for random in [[0; 16], [0xff; 16], [0x4c; 16]] {
            assert_eq!(Uaid::with_access(random, ID).access(), Some(ID));
        }
        // Version 4, as a server assigns it otherwise; and texts that are no UUID.
        let uuid = "f47ac10b-58cc-4372-a567-0e02b2c3d479";
        assert_eq!(Uaid::parse(uuid).unwrap().access(), None);
        assert_eq!(Uaid([0; 16]).access(), None);
        assert_eq!(Uaid::with_access([0; 16], ID).0[9..], [0; 7]);
        assert_eq!(AccessId::parse(&ID.to_string()), Ok(ID));
        for wrong in ["", "010203fdfef", "010203fdfeff0", "+10203fdfeff", "g10203fdfeff"] {
            assert_eq!(AccessId::parse(wrong), Err(NotAnAccessId), "{wrong}");
        }
    }

    #[test]
    fn a_token_is_valid_until_it_is_revoked_or_expires() {
        let table = with(&grant());
        assert_eq!(table.find("ab", Time(9_000)).map(|(id, _)| id), Some(ID));
        assert_eq!(table.find("ac", Time(9_000)), None);
        assert!(!table.has_ended(ID, Time(9_000)));
        // Another node may have added it a moment ago.
        assert!(!table.has_ended(AccessId([9; 6]), Time(9_000)));

        let table = with(&AccessGrant { expires_s: Some(9), ..grant() });
        assert_eq!(table.next_expiry(Time(8_999)), Some(Time(9_000)));
        assert_eq!(table.next_expiry(Time(9_000)), None);
        assert!(table.find("ab", Time(8_999)).is_some() && !table.has_ended(ID, Time(8_999)));
        assert!(table.find("ab", Time(9_000)).is_none() && table.has_ended(ID, Time(9_000)));

        let table = with(&AccessGrant { revoked_s: Some(1), ..grant() });
        assert!(table.find("ab", Time(0)).is_none() && table.has_ended(ID, Time(0)));
    }

    #[test]
    fn a_replaced_token_is_no_longer_valid_and_its_id_has_not_ended() {
        let mut table = with(&grant());
        let other = AccessGrant { sha256: "cd".into(), ..grant() };
        let update = |number, grant: &AccessGrant| {
            page(number, &ID.to_string(), Some(grant.to_value().as_str()))
        };
        assert_eq!(table.apply(update(2, &other)), [ID]);
        assert_eq!(table.apply(update(3, &AccessGrant { agents_max: 7, ..other })), []);
        assert!(table.find("ab", Time(0)).is_none() && !table.has_ended(ID, Time(0)));
        assert_eq!(
            table.find("cd", Time(0)).map(|(id, grant)| (id, grant.agents_max)),
            Some((ID, 7))
        );
    }

    #[test]
    fn an_entry_that_cannot_be_read_or_is_deleted_leaves_the_one_before_it() {
        let mut table = with(&grant());
        for (key, value) in
            [(&*ID.to_string(), None), (&ID.to_string(), Some("{}")), ("x", Some("{}"))]
        {
            table.apply(page(7, key, value));
            assert_eq!(table.get(ID), Some(&grant()), "{key} {value:?}");
        }
        assert_eq!((table.cursor(), table.iter().count()), (FeedSyncId(7), 1));
    }

    #[test]
    fn the_largest_entry_fits_and_a_name_is_one_word() {
        let name = "x".repeat(NAME_CHARS_MAX);
        let (most, sha256) = (Some(u64::MAX), "f".repeat(64));
        let largest = AccessGrant {
            name: name.clone(),
            sha256,
            created_s: u64::MAX,
            expires_s: most,
            agents_max: u32::MAX,
            revoked_s: most,
        };
        assert!(largest.to_value().as_str().len() <= GRANT_BYTES_MAX);
        assert!(is_name(&name) && is_name("alice@example.net") && is_name("a-b_c.9"));
        for wrong in [String::new(), name + "x", "a b".into(), "a/b".into(), "ä".into()] {
            assert!(!is_name(&wrong), "{wrong}");
        }
    }
}
