//! What a case starts from: an open, empty store, and names for agents, times and messages.

use std::ops::Deref;
use std::sync::Arc;

use state_machine::{
    BridgeName, BridgeRecipient, LastConnect, Message, Month, NodeId, RouterType, Span, Time, Uaid,
};
use storage::maintenance::{CopyProgress, InactiveUser, MonthRange, StoreAdmin};
use storage::{
    BridgedRegistration, Cursor, MonthStep, PageLimit, RegisterResult, Registration, StoreError,
    Stored,
};
use tempfile::TempDir;

use crate::names::{self, each_page};
pub(crate) use crate::names::{chid, chids, month};
use crate::store_calls::StoreCalls;

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
        each_page(async |after| {
            let page = self.inactive_users(seen, after).await.unwrap();
            assert!(page.users.len() <= storage::maintenance::USERS_IN_A_BATCH);
            users.extend(page.users);
            page.next
        })
        .await;
        users
    }

    pub(crate) async fn put(&self, uaid: Uaid, name: &str, message: &Message) {
        let stored = self.store_message(uaid, month(name), message.clone()).await;
        assert_eq!(stored, Ok(Stored::Done));
    }

    /// Every message of an agent that lives at the beginning of [`DECEMBER`].
    pub(crate) async fn waiting(&self, uaid: Uaid, name: &str) -> Vec<Message> {
        let all = PageLimit { rows: 1000, bytes: 1_000_000 };
        names::all_messages(&**self, uaid, month(name), all, DECEMBER).await
    }
}

impl Deref for World {
    type Target = dyn StoreAdmin;

    fn deref(&self) -> &Self::Target {
        &*self.store
    }
}

/// Agents of odd and of even numbers fall on different shards of an hour.
pub(crate) fn agent(number: u16) -> Uaid {
    let mut bytes = [0xa0; 16];
    bytes[14..].copy_from_slice(&number.to_be_bytes());
    Uaid(bytes)
}

/// A message for channel 1, a minute to live.
pub(crate) fn message(number: u32) -> Message {
    names::message(number, chid(1), DECEMBER)
}

pub(crate) fn topical(number: u32) -> Message {
    names::with_topic(number, "topic", message(number))
}

/// Of an agent behind a bridge; makes a record in the month of that time.
pub(crate) fn bridged(uaid: Uaid, connected_at: Time) -> BridgedRegistration {
    let (bridge, app, token) = (BridgeName::Fcm, "app".into(), "token".into());
    BridgedRegistration {
        uaid,
        recipient: BridgeRecipient { bridge, app, token, aps: None },
        connected_at,
        last_connect: LastConnect::of(connected_at, uaid, 1),
        create_in: Some(Month::of(connected_at)),
    }
}

/// Takes all steps. Returns how many there were, and what they did together.
pub(crate) async fn all_steps(
    mut step: impl AsyncFnMut(Option<Cursor>) -> Result<CopyProgress, StoreError>,
) -> (usize, CopyProgress) {
    let mut all = CopyProgress::default();
    let steps = each_page(async |after| {
        let done = step(after).await.unwrap();
        all.seen += done.seen;
        all.written += done.written;
        done.next
    });
    (steps.await, all)
}

fn node() -> NodeId {
    NodeId::new("a")
}
