//! What a case starts from: an open store with two months, and names for its agents and messages.

use std::ops::Deref;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use state_machine::{
    LastConnect, Message, Month, NodeId, RouterRecord, RouterType, Span, Time, Uaid,
};
use storage::{
    FeedTables, MonthStep, PageLimit, RegisterResult, Registration, Store, StoreAdmin, Stored,
};

use crate::dynamo::things::raw_client;
use crate::engines::{Engine, InDirectory, OnPostgres, OnWireServer};
use crate::names::{self, all_messages};
pub(crate) use crate::names::{NOW, chid, chids, month};
use crate::raw_rows::{self, Counts, RawRows};
use crate::store_calls::StoreCalls;

/// An open store with tables for [`OLD`] and [`NEW`] and for feeds. All its methods are those of
/// the store.
pub(crate) struct World {
    engine: Arc<dyn LookedAt>,
    store: Arc<dyn StoreAdmin>,
}

/// An engine whose rows can be read without it.
pub(crate) trait LookedAt: Engine {
    fn rows(&self) -> BoxFuture<'_, RawRows>;
}

impl LookedAt for InDirectory {
    fn rows(&self) -> BoxFuture<'_, RawRows> {
        async { raw_rows::of_files(self.0.path()) }.boxed()
    }
}

impl LookedAt for OnWireServer {
    fn rows(&self) -> BoxFuture<'_, RawRows> {
        let months = [OLD, NEW, UNMADE];
        async move { raw_rows::of_tables(&raw_client(), &self.0.table_prefix, &months).await }
            .boxed()
    }
}

impl LookedAt for OnPostgres {
    fn rows(&self) -> BoxFuture<'_, RawRows> {
        async { raw_rows::of_schema(&self.0.schema) }.boxed()
    }
}

/// Looks at all rows that a case has left.
pub(crate) async fn assert_rows_fit(engine: Arc<dyn LookedAt>) {
    assert_eq!(engine.rows().await.wrong(Counts::Exact), [""; 0]);
}

impl World {
    pub(crate) async fn open(engine: impl LookedAt) -> Self {
        let store = engine.open();
        store.ensure_month(month(OLD)).await.unwrap();
        store.ensure_month(month(NEW)).await.unwrap();
        store.ensure_feeds().await.unwrap();
        Self { engine: Arc::new(engine), store }
    }

    /// What stays of it when the case has ended.
    pub(crate) fn engine(&self) -> Arc<dyn LookedAt> {
        self.engine.clone()
    }

    /// The same store after a restart.
    pub(crate) async fn restart(mut self) -> Self {
        self.store.close().await.unwrap();
        self.store = self.engine.open();
        self
    }

    /// For tasks of their own.
    pub(crate) fn shared(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    /// For tasks of their own that use feeds.
    pub(crate) fn shared_feeds(&self) -> Arc<dyn FeedTables> {
        self.store.clone()
    }

    /// Registers channels 1 to 3 of agents 1 and 2 in both months.
    pub(crate) async fn with_channels(self) -> Self {
        for uaid in [agent(1), agent(2)] {
            for name in [OLD, NEW] {
                self.add_channels(uaid, month(name), chids([1, 2, 3])).await.unwrap();
            }
        }
        self
    }

    /// Stores a message of agent 1.
    pub(crate) async fn put(&self, name: &str, message: &Message) {
        let stored = self.store_message(agent(1), month(name), message.clone()).await;
        assert_eq!(stored, Ok(Stored::Done));
    }

    /// All live messages of agent 1.
    pub(crate) async fn waiting(&self, name: &str) -> Vec<Message> {
        self.waiting_for(agent(1), name).await
    }

    pub(crate) async fn waiting_for(&self, uaid: Uaid, name: &str) -> Vec<Message> {
        waiting(&*self.store, uaid, month(name)).await
    }

    /// Registers agent 1 at `connected_at`, which must succeed.
    pub(crate) async fn connect(&self, connected_at: u64) -> RouterRecord {
        match self.register_user(registration(connected_at)).await.unwrap() {
            RegisterResult::Registered(record, _) => record,
            refused => panic!("{refused:?}"),
        }
    }
}

impl Deref for World {
    type Target = dyn StoreAdmin;

    fn deref(&self) -> &Self::Target {
        &*self.store
    }
}

/// Every page of an agent's messages that live at [`NOW`].
pub(crate) async fn waiting(store: &dyn Store, uaid: Uaid, month: Month) -> Vec<Message> {
    all_messages(store, uaid, month, PAGE, NOW).await
}

pub(crate) const OLD: &str = "2026_10";
pub(crate) const NEW: &str = "2026_11";
/// A month that has no table.
pub(crate) const UNMADE: &str = "2026_12";

pub(crate) const PAGE: PageLimit = PageLimit { rows: 100, bytes: 100_000 };

pub(crate) fn agent(number: u8) -> Uaid {
    Uaid([number; 16])
}

pub(crate) fn node(name: &str) -> NodeId {
    NodeId::new(name)
}

/// Of agent 1 at node "a"; makes a record in [`OLD`].
pub(crate) fn registration(connected_at: u64) -> Registration {
    Registration {
        uaid: agent(1),
        router_type: RouterType::WebPush,
        node: node("a"),
        connected_at: Time(connected_at),
        last_connect: LastConnect(connected_at * 10),
        create_in: Some(month(OLD)),
    }
}

/// Agent 1 moves from [`OLD`] to [`NEW`], on the connection of [`registration`].
pub(crate) fn step(connected_at: u64) -> MonthStep {
    MonthStep {
        uaid: agent(1),
        node: Some(node("a")),
        connected_at: Time(connected_at),
        from: month(OLD),
        to: month(NEW),
        last_connect: LastConnect(4711),
    }
}

/// A message for channel 1 that was accepted a second ago, a minute to live.
pub(crate) fn message(number: u32) -> Message {
    names::message(number, chid(1), NOW - Span::from_secs(1))
}

pub(crate) fn topical(number: u32, topic: &str) -> Message {
    names::with_topic(number, topic, message(number))
}

/// A message that expired at [`NOW`].
pub(crate) fn expired(number: u32) -> Message {
    Message { ttl: Span::from_secs(1), ..message(number) }
}

pub(crate) fn sized(number: u32, bytes: usize) -> Message {
    Message { payload: Some(names::payload(vec![0xaa; bytes])), ..message(number) }
}
