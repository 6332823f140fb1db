//! The access tokens of a node.
//!
//! All of them are in memory. A push to an agent without a token costs one comparison of its uaid.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::RwLock;
use state_machine::Uaid;
use state_machine::access::{AccessId, AccessTable};
use state_machine::connection::CloseReason;
use state_machine::feed::{FeedName, FeedPage};
use storage::StoreError;

use crate::admission::Admission;
use crate::clock::Clock;
use crate::feeds::Feeds;

/// The access tokens, as all threads of a node see them.
#[derive(Clone)]
pub struct Access(pub(crate) Arc<AccessShared>);

pub(crate) struct AccessShared {
    pub(crate) table: RwLock<AccessTable>,
    /// By token, since the node started. No more than tokens.
    usage: RwLock<BTreeMap<AccessId, Arc<AccessUsage>>>,
    pub(crate) clock: Clock,
}

/// What the agents of a token have used on this node since it started.
#[derive(Debug, Default)]
pub struct AccessUsage {
    connections: AtomicU64,
    pushes: AtomicU64,
    bytes: AtomicU64,
    /// How often the token was replaced. A connection with an earlier one has ended.
    replacements: AtomicU32,
}

/// The numbers of an [`AccessUsage`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AccessCounts {
    pub connections: u64,
    /// Pushes that were accepted, and the size of their payloads in bytes.
    pub pushes: u64,
    pub bytes: u64,
}

/// Why a connection is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessRefusal {
    /// The token is unknown, revoked or expired.
    NoSuchToken,
    /// As many agents are connected with it as may.
    Full,
}

/// A connection with a token, counted until it is dropped.
pub struct AccessSlot {
    id: AccessId,
    usage: Arc<AccessUsage>,
    /// Those of [`AccessUsage`] when it connected.
    replacements: u32,
    access: Access,
}

/// The limits of a connection with a token.
pub struct WithAccess {
    pub of_address: Box<dyn Admission>,
    pub slot: AccessSlot,
}

/// Reads all tokens. Fails if the store does.
pub async fn load(feeds: &Feeds, clock: Clock) -> Result<Access, StoreError> {
    let apply = |table: &mut AccessTable, page| drop(table.apply(page));
    let table = feeds.read_all(FeedName::access(), apply).await?;
    let (table, usage) = (RwLock::new(table), RwLock::default());
    Ok(Access(Arc::new(AccessShared { table, usage, clock })))
}

impl Access {
    /// Counts a connection with the token that has this SHA-256, in hex.
    pub fn try_connect(&self, sha256: &str) -> Result<AccessSlot, AccessRefusal> {
        let table = self.0.table.read();
        let found = table.find(sha256, self.0.clock.now());
        let (id, agents_max) = found
            .map(|(id, grant)| (id, u64::from(grant.agents_max)))
            .ok_or(AccessRefusal::NoSuchToken)?;
        let usage = self.usage(id);
        let fits =
            |connections| (agents_max == 0 || connections < agents_max).then(|| connections + 1);
        let counted = usage.connections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        counted.map_err(|_| AccessRefusal::Full)?;
        let replacements = usage.replacements.load(Ordering::Relaxed);
        Ok(AccessSlot { id, usage, replacements, access: self.clone() })
    }

    /// Whether the token of this agent was revoked or has expired. False for an agent without one.
    pub fn has_ended(&self, uaid: Uaid) -> bool {
        uaid.access().is_some_and(|id| self.0.table.read().has_ended(id, self.0.clock.now()))
    }

    /// Counts an accepted push to an agent.
    pub fn count_push(&self, uaid: Uaid, bytes: usize) {
        let Some(id) = uaid.access().filter(|id| self.0.table.read().get(*id).is_some()) else {
            return;
        };
        let usage = self.usage(id);
        usage.pushes.fetch_add(1, Ordering::Relaxed);
        usage.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// What a token has used on this node.
    pub fn counts(&self, id: AccessId) -> AccessCounts {
        let usage = self.0.usage.read();
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        usage.get(&id).map_or_else(AccessCounts::default, |usage| AccessCounts {
            connections: count(&usage.connections),
            pushes: count(&usage.pushes),
            bytes: count(&usage.bytes),
        })
    }

    fn usage(&self, id: AccessId) -> Arc<AccessUsage> {
        let there = self.0.usage.read().get(&id).cloned();
        there.unwrap_or_else(|| Arc::clone(self.0.usage.write().entry(id).or_default()))
    }

    /// Applies a page of the feed. Returns the ids whose token was replaced: no connection with the former one gets a
    /// slot after it, and those without a hello are refused by it.
    pub(crate) fn apply(&self, page: FeedPage) -> Vec<AccessId> {
        let mut table = self.0.table.write();
        let replaced = table.apply(page);
        for id in &replaced {
            self.usage(*id).replacements.fetch_add(1, Ordering::Relaxed);
        }
        replaced
    }
}

impl AccessSlot {
    pub fn id(&self) -> AccessId {
        self.id
    }
}

impl Drop for AccessSlot {
    fn drop(&mut self) {
        self.usage.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Admission for WithAccess {
    fn hello(&self, uaid: Option<Uaid>) -> Result<(), CloseReason> {
        let AccessSlot { id, usage, replacements, access } = &self.slot;
        let table = access.0.table.read();
        let is_replaced = usage.replacements.load(Ordering::Relaxed) != *replacements;
        if is_replaced || table.has_ended(*id, access.0.clock.now()) {
            return Err(CloseReason::AccessEnded);
        }
        drop(table);
        self.of_address.hello(uaid)
    }

    fn new_agent(&self) -> bool {
        self.of_address.new_agent()
    }

    fn register(&self, uaid: Uaid) -> bool {
        self.of_address.register(uaid)
    }
}
