//! Bounds of the messages that wait for a user agent in one month, and which of them give way to a new one.
//!
//! Each engine counts on its own in `waiting_counts`: SQLite and PostgreSQL exactly, DynamoDB approximately.

use state_machine::store::FullScope;
use state_machine::{Chid, Encoding, Message, MessageId, Payload, Urgency};

/// How much may wait, and what happens above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitingLimits {
    pub user: WaitingBound,
    pub channel: WaitingBound,
    pub when_full: WhenFull,
}

/// A bound of messages and of their bytes. 0 is no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitingBound {
    pub messages_max: u64,
    /// Bytes of the payloads, and of the headers that the old encoding needs.
    pub bytes_max: u64,
}

/// What happens to a message above the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// It is not stored.
    Refuse,
    /// The least urgent and then the oldest messages are deleted until it fits. One that is less urgent than all of
    /// them is not stored.
    Replace,
}

/// Messages that wait, and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WaitingSize {
    pub messages: u64,
    pub bytes: u64,
}

/// What waits for a user agent, and in one of its channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WaitingCounts {
    pub user: WaitingSize,
    pub channel: WaitingSize,
}

/// A waiting message, which `key` identifies in its engine.
#[derive(Debug)]
pub struct WaitingMessage<K> {
    pub key: K,
    pub id: MessageId,
    pub chid: Chid,
    pub urgency: Urgency,
    pub bytes: u64,
}

impl WaitingLimits {
    pub const NONE: Self = Self {
        user: WaitingBound { messages_max: 0, bytes_max: 0 },
        channel: WaitingBound { messages_max: 0, bytes_max: 0 },
        when_full: WhenFull::Refuse,
    };

    pub fn is_none(&self) -> bool {
        (self.user, self.channel) == (Self::NONE.user, Self::NONE.channel)
    }

    /// Whose bound a message exceeds that replaces what its topic has. What does not grow exceeds none.
    pub fn exceeded_by(
        &self,
        counts: &WaitingCounts,
        added: WaitingSize,
        replaced: WaitingSize,
    ) -> Option<FullScope> {
        let fits =
            |bound: WaitingBound, there: WaitingSize| bound.admits(there, there - replaced + added);
        if !fits(self.channel, counts.channel) {
            Some(FullScope::Channel)
        } else if !fits(self.user, counts.user) {
            Some(FullScope::User)
        } else {
            None
        }
    }

    /// The messages to delete for a new one, or whose bound it exceeds if those that may give way are too few.
    pub fn give_way<K>(
        &self,
        mut rows: Vec<WaitingMessage<K>>,
        mut counts: WaitingCounts,
        message: &Message,
        replaced: WaitingSize,
    ) -> Result<Vec<K>, FullScope> {
        rows.retain(|row| row.urgency <= message.urgency);
        rows.sort_by_key(|row| (row.urgency, row.id));
        let mut deleted = Vec::new();
        while let Some(scope) = self.exceeded_by(&counts, WaitingSize::of(message), replaced) {
            let is_in_scope = |row: &WaitingMessage<K>| match scope {
                FullScope::User => true,
                FullScope::Channel => row.chid == message.chid,
            };
            let at = rows.iter().position(is_in_scope).ok_or(scope)?;
            let row = rows.remove(at);
            counts.user = counts.user - row.size();
            if row.chid == message.chid {
                counts.channel = counts.channel - row.size();
            }
            deleted.push(row.key);
        }
        Ok(deleted)
    }
}

impl WaitingBound {
    fn admits(self, there: WaitingSize, then: WaitingSize) -> bool {
        let is_within = |max, there, then| max == 0 || then <= max || then <= there;
        is_within(self.messages_max, there.messages, then.messages)
            && is_within(self.bytes_max, there.bytes, then.bytes)
    }
}

impl WaitingSize {
    pub const NOTHING: Self = Self { messages: 0, bytes: 0 };

    pub fn of(message: &Message) -> Self {
        Self { messages: 1, bytes: message.payload.as_ref().map_or(0, bytes_of) }
    }
}

fn bytes_of(payload: &Payload) -> u64 {
    let of_headers = match &payload.encoding {
        Encoding::Aes128Gcm | Encoding::Plain => 0,
        Encoding::AesGcm { encryption, crypto_key } => encryption.len() + crypto_key.len(),
    };
    (payload.data.len() + of_headers) as u64
}

impl std::ops::Add for WaitingSize {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { messages: self.messages + other.messages, bytes: self.bytes + other.bytes }
    }
}

/// Never below zero: counts of DynamoDB may be too low for a moment.
impl std::ops::Sub for WaitingSize {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            messages: self.messages.saturating_sub(other.messages),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

impl<K> WaitingMessage<K> {
    pub fn size(&self) -> WaitingSize {
        WaitingSize { messages: 1, bytes: self.bytes }
    }
}
