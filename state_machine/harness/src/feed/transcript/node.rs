//! A node that publishes: drives a [`Publisher`] over the table, and executes each publication in
//! steps.

use std::sync::Arc;

use super::input::{PublisherName, PublisherStep};
use super::outcome::{OutOfTurn, Outcome};
use state_machine::feed::{
    FeedKey, FeedSyncId, Publication, PublishResult, Publisher, PublisherEffect, PublisherEvent,
    PublisherLimits, Sequence, Table, UnpublishedKey,
};
use state_machine::store::StoreFailed;
use state_machine::time::Time;

/// A node that publishes, and its [`Publisher`].
#[derive(Debug, Clone)]
pub(super) struct Node {
    name: PublisherName,
    /// Whether the next number is `MAX + 1` of the numbers in the table, without the sequence.
    is_naive: bool,
    limits: Arc<PublisherLimits>,
    pub(super) machine: Publisher,
    publishing: Option<Publishing>,
}

/// A publication, and the steps that were executed.
#[derive(Debug, Clone)]
struct Publishing {
    after: Option<FeedKey>,
    limit: usize,
    found: Option<Found>,
    read: Option<Sequence>,
}

#[derive(Debug, Clone)]
struct Found {
    pending: Vec<UnpublishedKey>,
    /// Whether there are no more unpublished keys after these.
    is_all: bool,
}

use PublisherEvent as Is;

impl Node {
    pub(super) fn new(name: PublisherName, limits: Arc<PublisherLimits>, is_naive: bool) -> Self {
        let machine = Publisher::new(limits.clone());
        Self { name, is_naive, limits, machine, publishing: None }
    }

    pub(super) fn step(
        &mut self,
        now: Time,
        table: &mut Table,
        step: PublisherStep,
    ) -> Result<Vec<Outcome>, OutOfTurn> {
        Ok(match step {
            PublisherStep::Written => self.drive(now, Is::Written),
            PublisherStep::Watched(is_watched) => self.drive(now, Is::Watched(is_watched)),
            PublisherStep::Finds => vec![self.finds(table)?],
            PublisherStep::Reads => vec![self.reads(table)?],
            PublisherStep::Commits => self.commits(now, table, true)?,
            PublisherStep::CommitsUnheard => self.commits(now, table, false)?,
            PublisherStep::Publishes => {
                self.finds(table)?;
                self.reads(table)?;
                self.commits(now, table, true)?
            }
            PublisherStep::Fails => {
                self.open()?;
                self.answered(now, Err(StoreFailed))
            }
            PublisherStep::Crashes => {
                *self = Self::new(self.name, self.limits.clone(), self.is_naive);
                Vec::new()
            }
        })
    }

    /// Steps the machine with an event and keeps its effects.
    pub(super) fn drive(&mut self, now: Time, event: PublisherEvent) -> Vec<Outcome> {
        let effects = self.machine.step(now, event);
        for effect in &effects {
            if let PublisherEffect::Publish { after, limit } = effect.clone() {
                self.publishing = Some(Publishing { after, limit, found: None, read: None });
            }
        }
        effects.into_iter().map(|effect| Outcome::Publisher(self.name, effect)).collect()
    }

    fn answered(
        &mut self,
        now: Time,
        published: Result<Option<PublishResult>, StoreFailed>,
    ) -> Vec<Outcome> {
        self.publishing = None;
        self.drive(now, Is::Published(published))
    }

    fn finds(&mut self, table: &Table) -> Result<Outcome, OutOfTurn> {
        let publishing = self.open()?;
        let mut pending = table.pending(publishing.after.as_ref(), publishing.limit + 1);
        let is_all = pending.len() <= publishing.limit;
        pending.truncate(publishing.limit);
        publishing.found = Some(Found { pending: pending.clone(), is_all });
        Ok(Outcome::Found(self.name, pending))
    }

    fn reads(&mut self, table: &Table) -> Result<Outcome, OutOfTurn> {
        let (name, is_naive) = (self.name, self.is_naive);
        let publishing = self.open()?;
        let sequence = table.sequence();
        if is_naive {
            let max = greatest(table);
            publishing.read = Some(Sequence { value: max, ..sequence });
            return Ok(Outcome::Max(name, max));
        }
        publishing.read = Some(sequence);
        Ok(Outcome::Sequence(name, sequence))
    }

    fn commits(
        &mut self,
        now: Time,
        table: &mut Table,
        is_heard: bool,
    ) -> Result<Vec<Outcome>, OutOfTurn> {
        let name = self.name;
        let publishing = self.open()?;
        let looked = publishing.found.clone().zip(publishing.read);
        let (found, read) = looked.ok_or(OutOfTurn::NothingRead(name))?;
        let (published, mut outcomes) = match Publication::of(read, found.pending) {
            None => (nothing_waits(read), Vec::new()),
            Some(publication) if table.commit(&publication).is_err() => {
                (publishing.found, publishing.read) = (None, None);
                return Ok(vec![Outcome::Conflict]);
            }
            Some(publication) => {
                (Some(publication.outcome(found.is_all)), rows(table, &publication))
            }
        };
        let answer = if is_heard { Ok(published) } else { Err(StoreFailed) };
        outcomes.extend(self.answered(now, answer));
        Ok(outcomes)
    }

    fn open(&mut self) -> Result<&mut Publishing, OutOfTurn> {
        self.publishing.as_mut().ok_or(OutOfTurn::NothingToPublish(self.name))
    }
}

/// The greatest number in the table, to which a naive publisher adds 1.
fn greatest(table: &Table) -> FeedSyncId {
    table.rows().filter_map(|(_, row)| row.feed_sync_id).max().unwrap_or_default()
}

fn nothing_waits(read: Sequence) -> Option<PublishResult> {
    (read.keys > 0 || read.version > 0).then_some(PublishResult {
        count: 0,
        head: read.value,
        next: None,
    })
}

fn rows(table: &Table, publication: &Publication) -> Vec<Outcome> {
    let keys = publication.assignments.iter().map(|assigned| &assigned.pending.key);
    let row = |key: &FeedKey| Some(Outcome::Row(key.clone(), table.row(key.as_str())?.clone()));
    keys.filter_map(row).collect()
}
