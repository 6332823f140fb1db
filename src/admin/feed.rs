//! Feeds, as requests name them and lines tell of them.
//!
//! [`Page`] is also what a server answers over HTTP to whoever reads a feed.

use std::fmt;
use std::ops::Not;

use serde::{Deserialize, Serialize};
use state_machine::feed::{
    FeedKey, FeedName, FeedPage, FeedSyncId, FeedTextError, FeedValue, Update, Version,
};
use storage::feeds::FeedState;

/// Bytes of keys and values that one part of a page has at most; one update is always in it.
const PART_BYTES: usize = 128 * 1024;

/// Set a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeedPut {
    /// Of which feed.
    pub feed: Name,
    /// Which.
    pub key: Key,
    /// What it is to hold.
    pub value: Value,
}

/// Do something with a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyArgs {
    /// Of which feed.
    pub feed: Name,
    /// Which.
    pub key: Key,
}

/// Tell a feed's updates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeedTail {
    /// Which feed.
    pub feed: Name,
    /// Those behind this number.
    pub after: u64,
    /// No more than so many.
    pub count: Option<u64>,
    /// Only those that are there.
    pub once: bool,
}

/// A feed's name as a request writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(pub FeedName);

/// A key as a request writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Key(pub FeedKey);

/// A value as a request writes it. Requests are logged: it shows only how long it is.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Value(pub FeedValue);

/// Some of a feed's updates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// By their numbers.
    pub updates: Vec<UpdateRow>,
    /// Where to go on once they were taken in.
    pub cursor: u64,
    /// The feed's greatest number.
    pub head: u64,
}

/// An update.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateRow {
    /// Its number.
    pub feed_sync_id: u64,
    /// Which key.
    pub key: String,
    /// The version of the key.
    pub version: u64,
    /// What it holds; none where it was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Whether it was deleted.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub deleted: bool,
}

/// A feed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedRow {
    /// Its name.
    pub feed: String,
    /// Its greatest number.
    pub head: u64,
    /// Its keys, those that were deleted too.
    pub keys: u64,
}

/// A broadcast.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BroadcastRow {
    /// Its id.
    pub id: String,
    /// Its version.
    pub version: String,
}

impl Page {
    /// The same in parts that each fit on a line. A part's cursor is as true as the page's own: whoever took the part
    /// in has taken in all up to there.
    pub fn parts(self) -> Vec<Self> {
        let Self { updates, cursor, head } = self;
        let mut parts = vec![Self { updates: Vec::new(), cursor, head }];
        let mut bytes = 0;
        for row in updates {
            bytes += row.bytes();
            let part = parts.last_mut().expect("there is one from the start");
            match part.updates.last() {
                Some(last) if bytes > PART_BYTES => {
                    part.cursor = last.feed_sync_id;
                    bytes = row.bytes();
                    parts.push(Self { updates: vec![row], cursor, head });
                }
                _ => part.updates.push(row),
            }
        }
        parts
    }

    /// Cuts off what is more than so many updates.
    pub fn cut(&mut self, count: u64) {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if self.updates.len() > count {
            self.updates.truncate(count);
            let last = self.updates.last().map(|update| update.feed_sync_id);
            self.cursor = last.unwrap_or(self.cursor);
        }
    }

    /// Whether nothing more was there when it was read.
    pub fn is_last(&self) -> bool {
        self.cursor >= self.head
    }
}

impl UpdateRow {
    fn bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, String::len)
    }
}

impl From<FeedPage> for Page {
    fn from(page: FeedPage) -> Self {
        let updates = page.updates.into_iter().map(UpdateRow::from).collect();
        Self { updates, cursor: page.cursor.0, head: page.head.0 }
    }
}

impl From<Update> for UpdateRow {
    fn from(update: Update) -> Self {
        let Update { feed_sync_id: FeedSyncId(feed_sync_id), key, version, value } = update;
        let Version(version) = version;
        let value = value.map(|value| value.as_str().to_owned());
        Self { feed_sync_id, key: key.to_string(), version, deleted: value.is_none(), value }
    }
}

impl From<FeedState> for FeedRow {
    fn from(state: FeedState) -> Self {
        let FeedState { name, sequence } = state;
        Self { feed: name.to_string(), head: sequence.value.0, keys: sequence.keys }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.as_str().len())
    }
}

macro_rules! written_as_text {
    ($($name:ident($inner:ident))*) => { $(
        impl TryFrom<String> for $name {
            type Error = FeedTextError;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                $inner::parse(&text).map(Self)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0.as_str().to_owned()
            }
        }
    )* };
}

written_as_text!(Name(FeedName) Key(FeedKey) Value(FeedValue));

#[cfg(test)]
mod tests {
    use super::*;

    fn update(number: u64, bytes: usize) -> Update {
        Update {
            feed_sync_id: FeedSyncId(number),
            key: FeedKey::parse("k").unwrap(),
            version: Version(2),
            value: Some(FeedValue::parse(&"x".repeat(bytes)).unwrap()),
        }
    }

    fn page(updates: Vec<Update>, cursor: u64) -> Page {
        FeedPage { updates, cursor: FeedSyncId(cursor), head: FeedSyncId(99) }.into()
    }

    fn numbers(parts: &[Page]) -> Vec<(Vec<u64>, u64)> {
        let numbers = |part: &Page| part.updates.iter().map(|row| row.feed_sync_id).collect();
        parts.iter().map(|part| (numbers(part), part.cursor)).collect()
    }

    #[test]
    fn a_page_is_cut_into_lines_and_each_says_how_far_it_goes() {
        let small = vec![update(3, 10), update(5, 10)];
        assert_eq!(numbers(&page(small, 9).parts()), [(vec![3, 5], 9)]);
        let most = FeedValue::BYTES_MAX;
        let large = vec![update(3, 10), update(5, most), update(6, most), update(8, 1)];
        let expected = [(vec![3], 3), (vec![5], 5), (vec![6], 6), (vec![8], 9)];
        assert_eq!(numbers(&page(large, 9).parts()), expected);
        assert_eq!(numbers(&page(vec![], 9).parts()), [(vec![], 9)]);
    }

    #[test]
    fn what_is_cut_off_is_not_counted_as_seen() {
        let mut part = page(vec![update(3, 1), update(5, 1)], 9).parts().remove(0);
        part.cut(2);
        assert_eq!(numbers(&[part.clone()]), [(vec![3, 5], 9)]);
        part.cut(1);
        assert_eq!(numbers(&[part]), [(vec![3], 3)]);
    }

    #[test]
    fn a_value_is_not_shown_to_the_log() {
        let put = FeedPut {
            feed: Name(FeedName::broadcasts()),
            key: Key(FeedKey::parse("k").unwrap()),
            value: Value(FeedValue::parse("secret").unwrap()),
        };
        let shown = format!("{put:?}");
        assert!(shown.contains("6 bytes") && !shown.contains("secret"), "{shown}");
    }

    #[test]
    fn an_update_is_written_as_over_http() {
        let row = |update| serde_json::to_string(&UpdateRow::from(update)).unwrap();
        let set = r#"{"feed_sync_id":3,"key":"k","version":2,"value":"x"}"#;
        assert_eq!(row(update(3, 1)), set);
        let deleted = Update { value: None, ..update(3, 1) };
        let expected = r#"{"feed_sync_id":3,"key":"k","version":2,"deleted":true}"#;
        assert_eq!(row(deleted), expected);
    }
}
