//! The rows as the rules see them: each method sends a [`Request`].

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;

use futures_util::FutureExt;
use state_machine::feed::{FeedKey, FeedName, FeedSyncId, FeedValue, Sequence, UnpublishedKey};
use state_machine::store::{Cursor, PageLimit};
use state_machine::{Time, Uaid};
use storage::record_row::RecordRow;
use storage::rules::feed_rows::{
    Attempts, CommitBounds, Committed, FeedChange, FeedRows, KeyRow, NumberedPage, PendingPage,
    Refused, SequenceChange, SequenceRow,
};
use storage::rules::record_rows::{Changed, GuardedChange, RecordPage, RecordRows};
use storage::rules::topics::{MessageRow, Replaces, RowThere};
use storage::{ExpectedReceipt, StoreError};

use crate::request::{Answer, Request, RowOfMessage};
use crate::tables::Tables;

/// Attempts of a rule. One more is needed only if another process has changed the rows.
const ATTEMPTS_MAX: u32 = 4;

/// What executes the requests of a rule.
pub trait Execute {
    fn execute(&self, request: Request) -> impl Future<Output = Answer>;

    /// Whether a publication is settled by a request of its own.
    fn is_seen_in_part(&self) -> bool {
        false
    }
}

/// The tables at once, one request after the other.
impl Execute for RefCell<Tables> {
    async fn execute(&self, request: Request) -> Answer {
        let answer = self.borrow_mut().execute(&request);
        answer.expect("one rule alone waits for no other")
    }
}

/// The answers that a rule has until now. The first request without one ends its run.
#[derive(Default)]
pub struct Replay {
    answers: RefCell<Vec<Answer>>,
    /// The requests of this run.
    count: Cell<usize>,
    next: RefCell<Option<Request>>,
}

impl Execute for Replay {
    async fn execute(&self, request: Request) -> Answer {
        let at = self.count.replace(self.count.get() + 1);
        let known = self.answers.borrow().get(at).cloned();
        match known {
            Some(answer) => answer,
            None => {
                self.next.replace(Some(request));
                pending().await
            }
        }
    }
}

/// A rule that is stopped at a request.
///
/// A future cannot be cloned, so a state of a model has the answers of the store, which decide what a rule has done: a step
/// runs the rule from its beginning with them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Suspended<C> {
    pub call: C,
    pub answers: Arc<Vec<Answer>>,
    /// The request after these answers.
    pub next: Arc<Request>,
}

/// The call of a rule.
pub trait Call {
    type Outcome;

    fn run(&self, requests: &Replay) -> impl Future<Output = Self::Outcome>;
}

impl<C: Call> Suspended<C> {
    /// Runs a rule until its first request.
    pub fn begin(call: C) -> Self {
        let Err(next) = run(&call, &mut Vec::new()) else { panic!("a rule sends a request") };
        Self { call, answers: Arc::default(), next: next.into() }
    }

    /// The store has answered the request. Returns what the rule returns, if it ends.
    pub fn goes_on(&mut self, answer: Answer) -> Option<C::Outcome> {
        let mut answers = Arc::unwrap_or_clone(std::mem::take(&mut self.answers));
        answers.push(answer);
        let outcome = run(&self.call, &mut answers).map_err(|next| self.next = next.into());
        self.answers = Arc::new(answers);
        outcome.ok()
    }
}

/// Runs a rule with these answers: to its end, or to the next request.
fn run<C: Call>(call: &C, answers: &mut Vec<Answer>) -> Result<C::Outcome, Box<Request>> {
    let replay = Replay { answers: RefCell::new(std::mem::take(answers)), ..Replay::default() };
    let outcome = call.run(&replay).now_or_never();
    *answers = replay.answers.into_inner();
    let next = || replay.next.into_inner().expect("a rule waits for answers only");
    outcome.ok_or_else(|| Box::new(next()))
}

/// The rows behind what executes their requests.
pub struct Rows<'a, E>(pub &'a E);

/// Sends a request, and takes its answer apart.
macro_rules! ask {
    ($rows:expr, $request:expr, $answer:ident) => {
        match $rows.0.execute($request).await {
            Answer::$answer(answer) => answer,
            other => unreachable!("{other:?} is no answer to it"),
        }
    };
}

impl<E: Execute> Rows<'_, E> {
    pub async fn is_done(&self, request: Request) -> bool {
        ask!(self, request, Is)
    }
}

impl<E: Execute> RecordRows for Rows<'_, E> {
    type Error = StoreError;

    async fn record(&self, uaid: Uaid) -> Result<Option<RecordRow>, StoreError> {
        Ok(ask!(self, Request::Record(uaid), Record).map(|row| *row))
    }

    async fn change_record(&self, change: &GuardedChange) -> Result<Changed, StoreError> {
        let before = ask!(self, Request::Change(change.clone()), Changed);
        Ok(before.map_or(Changed::Refused(None), |before| Changed::Done(*before)))
    }

    async fn records(&self, _after: Option<&Cursor>) -> Result<RecordPage, StoreError> {
        Ok(RecordPage { rows: ask!(self, Request::Records, Records), ..RecordPage::default() })
    }
}

impl<E: Execute> FeedRows for Rows<'_, E> {
    type Error = StoreError;

    const BOUNDS: CommitBounds =
        CommitBounds { published: 8, forgotten: 8, fetched: 8, receipts: 8 };

    async fn sequence(&self, feed: &FeedName) -> Result<Option<SequenceRow>, StoreError> {
        Ok(ask!(self, Request::Sequence(feed.clone()), Sequence))
    }

    async fn key(&self, feed: &FeedName, key: &FeedKey) -> Result<Option<KeyRow>, StoreError> {
        let there = ask!(self, Request::Key(feed.clone(), key.clone()), Key);
        Ok(there.map(|(row, _)| row))
    }

    async fn value(
        &self,
        feed: &FeedName,
        key: &FeedKey,
        row: KeyRow,
    ) -> Result<Option<Option<FeedValue>>, StoreError> {
        let there = ask!(self, Request::Value(feed.clone(), key.clone()), Key);
        Ok(there.filter(|(there, _)| *there == row).map(|(_, value)| value))
    }

    async fn pending(
        &self,
        feed: &FeedName,
        after: Option<&FeedKey>,
        rows: usize,
        _refused: &BTreeSet<UnpublishedKey>,
    ) -> Result<PendingPage, StoreError> {
        let (feed, after) = (feed.clone(), after.cloned());
        Ok(ask!(self, Request::Pending { feed, after, rows }, Pending))
    }

    async fn numbered(
        &self,
        feed: &FeedName,
        after: FeedSyncId,
        last: FeedSyncId,
        limit: PageLimit,
    ) -> Result<NumberedPage, StoreError> {
        let (feed, rows) = (feed.clone(), limit.rows);
        Ok(ask!(self, Request::Numbered { feed, after, last, rows }, Numbered))
    }

    async fn raise_horizon(
        &self,
        feed: &FeedName,
        read: &Sequence,
        raised: &Sequence,
    ) -> Result<bool, StoreError> {
        let (feed, read, raised) = (feed.clone(), *read, *raised);
        Ok(self.is_done(Request::RaiseHorizon { feed, read, raised }).await)
    }

    async fn settle(&self, feed: &FeedName, row: SequenceRow) -> Result<bool, StoreError> {
        let is_settled = row.settled == row.sequence.value || !self.0.is_seen_in_part();
        Ok(is_settled || self.is_done(Request::Settle(feed.clone(), row.sequence)).await)
    }

    async fn receipts_due(
        &self,
        now: Time,
        _after: Option<Cursor>,
    ) -> Result<(Vec<ExpectedReceipt>, Option<Cursor>), StoreError> {
        Ok((ask!(self, Request::Due(now), Due), None))
    }

    /// In the steps of DynamoDB: the keys of each subscription that has ended, and then its sequence.
    async fn remove_ended(&self, now: Time) -> Result<(u64, bool), StoreError> {
        let (mut removed, mut is_more) = (0, false);
        for (feed, keys) in ask!(self, Request::Ended(now), Ended) {
            while self.is_done(Request::RemoveKeys(feed.clone())).await {}
            let is_removed = self.is_done(Request::RemoveSequence(feed, keys)).await;
            removed += u64::from(is_removed);
            is_more |= !is_removed;
        }
        Ok((removed, is_more))
    }

    async fn commit(&self, change: FeedChange<'_>) -> Result<Committed<StoreError>, StoreError> {
        let settled = match (&change.sequence, self.0.is_seen_in_part()) {
            (SequenceChange::Advance { to, .. }, true) => Some((change.feed.clone(), *to)),
            _ => None,
        };
        if let Err(conflict) = ask!(self, Request::Commit(change.into()), Committed) {
            let (expected, keys) = (conflict.expected, conflict.keys);
            return Ok(Committed::Refused(Refused { expected, keys, lost: None }));
        }
        if let Some((feed, sequence)) = settled {
            self.is_done(Request::Settle(feed, sequence)).await;
        }
        Ok(Committed::Done)
    }

    async fn next_attempt(
        &self,
        attempts: &mut Attempts,
        _lost: Option<StoreError>,
    ) -> Result<(), StoreError> {
        attempts.count += 1;
        if attempts.count < ATTEMPTS_MAX { Ok(()) } else { Err(StoreError::Busy) }
    }
}

/// The row of a message, behind what executes its requests.
pub struct RowOf<'a, E>(pub &'a E, pub &'a RowOfMessage);

impl<E: Execute> MessageRow for RowOf<'_, E> {
    type Error = StoreError;
    type Replaced = ();

    async fn put(&self, replaces: Replaces) -> Result<Option<()>, StoreError> {
        Ok(ask!(self, Request::PutMessage(self.1.clone(), replaces), Is).then_some(()))
    }

    async fn there(&self) -> Result<Option<RowThere>, StoreError> {
        Ok(ask!(self, Request::Message(self.1.clone()), Message))
    }

    fn contended(&self) -> StoreError {
        StoreError::Busy
    }
}
