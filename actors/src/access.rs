//! The access tokens of a node: follows their feed, and closes the connections of a token that has ended or was replaced.
//!
//! All of them are in memory. A push to an agent without a token costs one comparison of its uaid.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use actix::dev::SendError;
use actix::{Actor, AsyncContext, Context, StreamHandler};
use parking_lot::RwLock;
use slog::{Logger, info, warn};
use state_machine::access::{AccessGrant, AccessId, AccessTable};
use state_machine::connection::CloseReason;
use state_machine::feed::{FeedName, FeedPage};
use state_machine::{Span, Uaid};
use storage::StoreError;

use crate::admission::Admission;
use crate::alarm::Alarm;
use crate::clock::Clock;
use crate::feeds::{FeedSubscription, Feeds, SubscriptionError, pages};
use crate::mailbox::BoundedAddr;
use crate::registry::{CloseAccess, RegistryActor};

/// The longest time until the clock is compared with the next expiry: the clock may be set.
const EXPIRY_CHECK: Span = Span::from_secs(60);

/// The wait before the registry is notified again whose mailbox was full.
const RETRY: Span = Span::from_secs(1);

/// The access tokens, as all threads of a node see them.
#[derive(Clone)]
pub struct Access(Arc<Shared>);

struct Shared {
    table: RwLock<AccessTable>,
    /// By token, since the node started. No more than tokens.
    usage: RwLock<BTreeMap<AccessId, Arc<AccessUsage>>>,
    clock: Clock,
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
    Ok(Access(Arc::new(Shared { table, usage, clock })))
}

impl Access {
    /// Follows the feed of the tokens from now on. Connections are closed by `registry`.
    pub fn follow(&self, feeds: &Feeds, registry: BoundedAddr<RegistryActor>, log: Logger) {
        let now = self.0.clock.now();
        // There are no connections yet.
        let table = self.0.table.read();
        let ended = table.iter().filter(|(_, grant)| grant.has_ended(now));
        let closed = ended.map(|(id, _)| id).collect();
        drop(table);
        let (access, feeds, alarm) = (self.clone(), feeds.clone(), Alarm::default());
        let replaced = BTreeSet::new();
        AccessActor { access, feeds, registry, closed, replaced, alarm, log }.start();
    }

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
    fn apply(&self, page: FeedPage) -> Vec<AccessId> {
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

/// Follows the feed of the tokens.
struct AccessActor {
    access: Access,
    feeds: Feeds,
    registry: BoundedAddr<RegistryActor>,
    /// The tokens that have ended and whose connections the registry closes.
    closed: BTreeSet<AccessId>,
    /// The ids whose token was replaced, and whose connections the registry does not close yet.
    replaced: BTreeSet<AccessId>,
    alarm: Alarm,
    log: Logger,
}

impl AccessActor {
    fn subscription(&self) -> FeedSubscription {
        let cursor = self.access.0.table.read().cursor();
        self.feeds.subscribe_when_created(FeedName::access(), cursor)
    }

    /// Closes the connections of tokens that have ended or were replaced, and sets the alarm for the next one.
    fn close_ended(&mut self, ctx: &mut Context<Self>) {
        let now = self.access.0.clock.now();
        let mut wait = None;
        {
            let table = self.access.0.table.read();
            let is_over = |id: &AccessId, grant: &AccessGrant| {
                self.replaced.contains(id) || grant.has_ended(now) && !self.closed.contains(id)
            };
            let over = table.iter().filter(|(id, grant)| is_over(id, grant));
            for (id, grant) in over.collect::<Vec<_>>() {
                match self.registry.try_send(CloseAccess { id }) {
                    Ok(()) => {
                        self.replaced.remove(&id);
                        let has_ended = grant.has_ended(now);
                        log_closed(grant, has_ended, &self.log);
                        if has_ended {
                            self.closed.insert(id);
                        }
                    }
                    Err(SendError::Full(_)) => wait = Some(now + RETRY),
                    // The node is stopping.
                    Err(SendError::Closed(_)) => {}
                }
            }
            let expiry = table.next_expiry(now).map(|at| at.min(now + EXPIRY_CHECK));
            wait = wait.or(expiry);
        }
        self.alarm.set(wait, &self.access.0.clock, ctx, |actor: &mut Self, ctx| {
            actor.alarm.has_fired();
            actor.close_ended(ctx);
        });
    }
}

fn log_closed(grant: &AccessGrant, has_ended: bool, log: &Logger) {
    let name = &grant.name;
    if has_ended {
        info!(log, "an access token has ended, its user agents are closed"; "name" => name);
    } else {
        info!(log, "an access token was replaced, its user agents are closed"; "name" => name);
    }
}

impl Actor for AccessActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.add_stream(pages(self.subscription()));
        self.close_ended(ctx);
    }
}

impl StreamHandler<Result<FeedPage, SubscriptionError>> for AccessActor {
    fn handle(&mut self, page: Result<FeedPage, SubscriptionError>, ctx: &mut Self::Context) {
        match page {
            Ok(page) => self.replaced.extend(self.access.apply(page)),
            Err(SubscriptionError::Closed) => {}
            Err(SubscriptionError::End(error)) => {
                warn!(self.log, "the access tokens were replaced, reading them from the beginning";
                    "error" => ?error);
                *self.access.0.table.write() = AccessTable::default();
                ctx.add_stream(pages(self.subscription()));
            }
        }
        self.close_ended(ctx);
    }

    /// Keeps the actor alive: another stream may be there, and tokens expire.
    fn finished(&mut self, _: &mut Self::Context) {}
}
