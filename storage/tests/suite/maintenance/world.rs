//! What a case starts from: an open, empty store, and names for agents, times and messages.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use state_machine::{
    Chid, Encoding, LastConnect, Message, MessageId, Month, NodeId, Payload, RouterType, Span,
    Time, Topic, Uaid, Urgency,
};
use storage::maintenance::{InactiveUser, MonthRange, StoreAdmin};
use storage::{MonthStep, PageLimit, RegisterResult, Registration, Stored};
use tempfile::TempDir;

/// Places an hour is spread over here.
pub(crate) const SPREAD: usize = 2;

/// Midnight, 1 December 2026.
pub(crate) const DECEMBER: Time = Time(1_796_083_200_000);
pub(crate) const HOUR: Span = Span::from_secs(3600);
pub(crate) const DAY: Span = Span::from_secs(24 * 3600);

/// An open store. All its methods are those of the store.
pub(crate) struct World {
    store: Arc<dyn StoreAdmin>,
    /// Where its files are, if it has any.
    pub(crate) home: Option<TempDir>,
}

impl World {
    pub(crate) fn new(store: Arc<dyn StoreAdmin>, home: Option<TempDir>) -> Self {
        Self { store, home }
    }

    /// A world around a store that the caller owns.
    pub(crate) fn shared(&self) -> Arc<dyn StoreAdmin> {
        self.store.clone()
    }

    /// Makes tables for these months.
    pub(crate) async fn with_months(self, names: &[&str]) -> Self {
        for name in names {
            self.ensure_month(month(name)).await.unwrap();
        }
        self
    }

    /// An agent connects; its record is on the month of that time.
    pub(crate) async fn connect(&self, uaid: Uaid, time: Time) {
        let registration = Registration {
            uaid,
            router_type: RouterType::WebPush,
            node: node(),
            connected_at: time,
            last_connect: LastConnect::of(time, uaid, SPREAD),
            create_in: Some(Month::of(time)),
        };
        let registered = self.register_user(registration).await.unwrap();
        assert!(matches!(registered, RegisterResult::Registered(..)), "{registered:?}");
    }

    /// An agent that connected at `time` moves to a month, and is not done with it.
    pub(crate) async fn begin_move(&self, uaid: Uaid, time: Time, to: &str) {
        let step = MonthStep {
            uaid,
            node: Some(node()),
            connected_at: time,
            from: Month::of(time),
            to: month(to),
            last_connect: LastConnect::of(time, uaid, SPREAD),
        };
        assert_eq!(self.update_message_month(step).await, Ok(true));
    }

    pub(crate) async fn exists(&self, uaid: Uaid) -> bool {
        self.record(uaid).await.unwrap().is_some()
    }

    /// All users last seen in these months, in the order in which they are found.
    pub(crate) async fn inactive(&self, first: &str, last: &str) -> Vec<InactiveUser> {
        let seen = MonthRange { first: month(first), last: month(last) };
        let mut users = Vec::new();
        let mut after = None;
        loop {
            let page = self.inactive_users(seen, after).await.unwrap();
            assert!(page.users.len() <= storage::maintenance::USERS_IN_A_BATCH);
            users.extend(page.users);
            match page.next {
                Some(next) => after = Some(next),
                None => return users,
            }
        }
    }

    pub(crate) async fn put(&self, uaid: Uaid, name: &str, message: &Message) {
        let stored = self.store_message(uaid, month(name), message.clone()).await;
        assert_eq!(stored, Ok(Stored::Done));
    }

    /// Every message of an agent that lives at the beginning of [`DECEMBER`].
    pub(crate) async fn waiting(&self, uaid: Uaid, name: &str) -> Vec<Message> {
        let all = PageLimit { rows: 1000, bytes: 1_000_000 };
        let mut messages = Vec::new();
        let mut after = None;
        loop {
            let page = self.fetch_messages(uaid, month(name), after, all, DECEMBER).await.unwrap();
            messages.extend(page.messages);
            match page.next {
                Some(next) => after = Some(next),
                None => return messages,
            }
        }
    }
}

impl Deref for World {
    type Target = dyn StoreAdmin;

    fn deref(&self) -> &Self::Target {
        &*self.store
    }
}

pub(crate) fn month(name: &str) -> Month {
    name.parse().unwrap()
}

/// Agents of odd and of even numbers fall on different shards of an hour.
pub(crate) fn agent(number: u16) -> Uaid {
    let mut bytes = [0xa0; 16];
    bytes[14..].copy_from_slice(&number.to_be_bytes());
    Uaid(bytes)
}

pub(crate) fn chid(number: u16) -> Chid {
    let mut bytes = [0xc0; 16];
    bytes[14..].copy_from_slice(&number.to_be_bytes());
    Chid(bytes)
}

pub(crate) fn chids(numbers: impl IntoIterator<Item = u16>) -> BTreeSet<Chid> {
    numbers.into_iter().map(chid).collect()
}

/// A message for channel 1, a minute to live.
pub(crate) fn message(number: u32) -> Message {
    Message {
        id: id(number, false),
        chid: chid(1),
        topic: None,
        urgency: Urgency::Normal,
        accepted_at: DECEMBER,
        ttl: Span::from_secs(60),
        offers: 0,
        receipt: None,
        payload: Some(Payload {
            data: Bytes::from(format!("message {number}")),
            encoding: Encoding::Aes128Gcm,
        }),
    }
}

pub(crate) fn topical(number: u32) -> Message {
    let topic = Some(Topic::parse("topic").unwrap());
    Message { id: id(number, true), topic, ..message(number) }
}

fn id(number: u32, has_topic: bool) -> MessageId {
    MessageId::from_uuid_v7((u128::from(number) << 80) | 0x7000 << 64 | 0x5ee4, has_topic)
}

fn node() -> NodeId {
    NodeId::new("a")
}
