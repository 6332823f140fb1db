//! A follower of the feed: drives a [`Consumer`] over the table, and executes each fetch in steps.

use std::collections::BTreeMap;

use super::input::{ConsumerName, ConsumerStep};
use super::outcome::{OutOfTurn, Outcome};
use state_machine::feed::{
    Consumer, ConsumerEffect, ConsumerEvent, ConsumerLimits, FeedKey, FeedPage, FeedSyncId, Table,
    Version,
};
use state_machine::store::{PageLimit, StoreFailed};
use state_machine::time::Time;

/// A follower of the feed and its [`Consumer`].
#[derive(Debug, Clone)]
pub(super) struct Follower {
    name: ConsumerName,
    limits: ConsumerLimits,
    /// None before the start and after a crash.
    pub(super) machine: Option<Consumer>,
    fetching: Option<Fetching>,
    /// The page that the follower is consuming.
    page: Option<FeedPage>,
    /// The cursor and the versions of the consumed updates. Both survive a crash.
    cursor: FeedSyncId,
    versions: BTreeMap<FeedKey, Version>,
}

/// A fetch, and the steps that were executed.
#[derive(Debug, Clone, Copy)]
struct Fetching {
    after: FeedSyncId,
    limit: PageLimit,
    /// The head that was read: `None` before the read, `Some(None)` if there is no such feed.
    head: Option<Option<FeedSyncId>>,
}

use ConsumerEvent as Is;

impl Follower {
    pub(super) fn new(name: ConsumerName, limits: ConsumerLimits) -> Self {
        Self {
            name,
            limits,
            machine: None,
            fetching: None,
            page: None,
            cursor: FeedSyncId::NONE,
            versions: BTreeMap::new(),
        }
    }

    pub(super) fn step(
        &mut self,
        now: Time,
        table: &Table,
        step: ConsumerStep,
    ) -> Result<Vec<Outcome>, OutOfTurn> {
        match step {
            ConsumerStep::Starts(after) => self.starts(now, after),
            ConsumerStep::Hears(head) => self.drive(now, Is::HeadMoved(head)),
            ConsumerStep::ReadsHead => Ok(vec![self.reads_head(table)?]),
            ConsumerStep::ReadsUpdates => self.reads_updates(now, table),
            ConsumerStep::Fetches => {
                self.reads_head(table)?;
                self.reads_updates(now, table)
            }
            ConsumerStep::Consumed => self.consumed(now),
            ConsumerStep::Fails => {
                self.open()?;
                self.answered(now, Err(StoreFailed))
            }
            ConsumerStep::Crashes => {
                (self.machine, self.fetching, self.page) = (None, None, None);
                Ok(Vec::new())
            }
            ConsumerStep::Compares => Ok(self.compares(table)),
        }
    }

    /// Steps the machine with an event and keeps its effects.
    pub(super) fn drive(
        &mut self,
        now: Time,
        event: ConsumerEvent,
    ) -> Result<Vec<Outcome>, OutOfTurn> {
        let machine = self.machine.as_mut().ok_or(OutOfTurn::NotStarted(self.name))?;
        let effects = machine.step(now, event);
        for effect in &effects {
            match effect {
                ConsumerEffect::Fetch { after, limit } => {
                    self.fetching = Some(Fetching { after: *after, limit: *limit, head: None });
                }
                ConsumerEffect::Consume(page) => self.page = Some(page.clone()),
                ConsumerEffect::End(_) => {}
            }
        }
        Ok(effects.into_iter().map(|effect| Outcome::Consumer(self.name, effect)).collect())
    }

    fn starts(&mut self, now: Time, after: Option<FeedSyncId>) -> Result<Vec<Outcome>, OutOfTurn> {
        if self.machine.is_some() {
            return Err(OutOfTurn::Started(self.name));
        }
        self.cursor = after.unwrap_or(self.cursor);
        self.machine = Some(Consumer::new(self.limits, self.cursor));
        self.drive(now, Is::Started)
    }

    fn reads_head(&mut self, table: &Table) -> Result<Outcome, OutOfTurn> {
        let sequence = table.sequence();
        let head = (sequence.keys > 0 || sequence.version > 0).then_some(sequence.value);
        self.open()?.head = Some(head);
        Ok(Outcome::Head(self.name, head))
    }

    fn reads_updates(&mut self, now: Time, table: &Table) -> Result<Vec<Outcome>, OutOfTurn> {
        let Fetching { after, limit, head } = *self.open()?;
        let head = head.ok_or(OutOfTurn::NoHead(self.name))?;
        let page = head.map(|head| page(table, after, head, limit));
        self.answered(now, Ok(page))
    }

    fn answered(
        &mut self,
        now: Time,
        fetched: Result<Option<FeedPage>, StoreFailed>,
    ) -> Result<Vec<Outcome>, OutOfTurn> {
        self.fetching = None;
        self.drive(now, Is::Fetched(fetched))
    }

    fn consumed(&mut self, now: Time) -> Result<Vec<Outcome>, OutOfTurn> {
        let page = self.page.take().ok_or(OutOfTurn::NothingToConsume(self.name))?;
        let seen = page.updates.into_iter().map(|update| (update.key, update.version));
        self.versions.extend(seen);
        self.cursor = page.cursor;
        self.drive(now, Is::Consumed)
    }

    fn compares(&self, table: &Table) -> Vec<Outcome> {
        let is_missed = |key: &FeedKey, version| self.versions.get(key) != Some(&version);
        let missed = table.rows().filter(|(key, row)| is_missed(key, row.version));
        let missed: Vec<Outcome> =
            missed.map(|(key, row)| Outcome::Misses(self.name, key.clone(), row.clone())).collect();
        if missed.is_empty() { vec![Outcome::MissesNothing(self.name)] } else { missed }
    }

    fn open(&mut self) -> Result<&mut Fetching, OutOfTurn> {
        self.fetching.as_mut().ok_or(OutOfTurn::NothingToFetch(self.name))
    }
}

/// The page that an engine returns for a fetch with this head.
fn page(table: &Table, after: FeedSyncId, head: FeedSyncId, limit: PageLimit) -> FeedPage {
    let mut updates = table.sequenced(after, head);
    let is_all = updates.len() <= limit.rows;
    updates.truncate(limit.rows);
    let last = updates.last().map(|update| update.feed_sync_id);
    let cursor = last.filter(|_| !is_all).unwrap_or(head.max(after));
    FeedPage { updates, cursor, head, horizon: table.sequence().horizon }
}
