//! A rule of the storage crate on the model's store: the code that servers run, one request a step.
//!
//! A future cannot be cloned. So a state has the answers of the store, which decide what a rule has done: a step runs the
//! rule from its beginning with these answers, and the store executes the request after them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::pending;

use futures_util::FutureExt;
use state_machine::Time;
use state_machine::feed::{
    FeedKey, FeedName, FeedPage, FeedSyncId, FeedValue, Publication, PublishResult, Sequence,
    UnpublishedKey, Update, Version,
};
use state_machine::store::{Cursor, PageLimit};
use storage::ExpectedReceipt;
use storage::rules::feed_rows::{
    Attempts, CommitBounds, Committed, FeedChange, FeedRows, KeyRow, NumberedPage, PendingPage,
    Refused, SequenceChange, SequenceRow,
};
use storage::rules::feeds::{self, Rewrite};

use super::mutation::Mutation;
use super::store::{Draft, Store};

/// The call of a rule, and how far it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Rule {
    call: Call,
    answers: Vec<Answer>,
    /// The request after these answers.
    pub(crate) next: Option<Request>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Call {
    Write(FeedKey, FeedValue),
    Republish(FeedKey),
    Delete(FeedKey),
    Publish { after: Option<FeedKey>, limit: usize },
    Fetch { after: FeedSyncId, limit: PageLimit },
    Forget(FeedSyncId),
}

/// What a rule returns.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    Changed(Option<Version>),
    Published(Option<PublishResult>),
    Fetched(Option<FeedPage>),
    Forgotten,
}

/// A request of a rule to the store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Request {
    Sequence,
    Key(FeedKey),
    Value(FeedKey),
    Pending {
        after: Option<FeedKey>,
        limit: usize,
    },
    /// The update that has this number. Readers of several rows see each of them at another time.
    Number(FeedSyncId),
    /// Whether no greater number is in use.
    IsLast(FeedSyncId),
    RaiseHorizon(FeedSyncId),
    /// Settles an earlier publication, or the one that was committed by this rule.
    Settle(Sequence),
    Change {
        key: FeedKey,
        before: Option<Version>,
        value: Option<FeedValue>,
    },
    Publish(Draft),
    Remove(Vec<(FeedKey, Version)>),
}

/// An answer of the store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    Sequence(Option<SequenceRow>),
    Key(Option<(KeyRow, Option<FeedValue>)>),
    Pending(PendingPage),
    Number(Option<Update>),
    /// Whether it was done.
    Is(bool),
}

/// The maximum number of keys in the feed: more than any scenario has.
const KEYS_MAX: u64 = 8;

impl Rule {
    pub(crate) fn new(call: Call) -> Self {
        let mut rule = Self { call, answers: Vec::new(), next: None };
        rule.run(None, None);
        rule
    }

    /// The store executes the next request, unless it waits for others. Returns what the rule returns, if it ends.
    pub(crate) fn goes_on(
        &mut self,
        store: &mut Store,
        mutation: Option<Mutation>,
    ) -> Option<Outcome> {
        self.run(Some(store), mutation)
    }

    /// Whether the store has answered a request.
    pub(crate) fn has_begun(&self) -> bool {
        !self.answers.is_empty()
    }

    /// The transaction of a publication, if it is sent.
    pub(crate) fn draft(&self) -> Option<&Draft> {
        match &self.next {
            Some(Request::Publish(draft)) => Some(draft),
            _ => None,
        }
    }

    /// Whether keys wait behind those that it read.
    pub(crate) fn leaves_some(&self) -> bool {
        let page = self.answers.iter().rev().find_map(|answer| match answer {
            Answer::Pending(page) => Some(page),
            _ => None,
        });
        page.is_some_and(|page| !page.is_all)
    }

    fn run(&mut self, store: Option<&mut Store>, mutation: Option<Mutation>) -> Option<Outcome> {
        let rows = Rows {
            is_partial: store.as_ref().is_some_and(|store| store.settled.is_some()),
            answers: RefCell::new(std::mem::take(&mut self.answers)),
            at: Cell::new(0),
            store: RefCell::new(store),
            next: RefCell::new(None),
            first: RefCell::new(None),
            mutation,
        };
        let outcome = self.call.on(&rows).now_or_never();
        self.answers = rows.answers.into_inner();
        self.next = rows.next.into_inner();
        outcome
    }
}

impl Call {
    async fn on(&self, rows: &Rows<'_>) -> Outcome {
        let feed = FeedName::broadcasts();
        let done = match self {
            Self::Write(key, value) => {
                let written = feeds::write(rows, &feed, key, value, KEYS_MAX).await;
                written.map(|written| match written {
                    state_machine::feed::WriteResult::Done(version) => {
                        Outcome::Changed(Some(version))
                    }
                    full => panic!("a scenario has fewer than {KEYS_MAX} keys: {full:?}"),
                })
            }
            Self::Republish(key) => {
                feeds::rewrite(rows, &feed, key, Rewrite::Republish).await.map(Outcome::Changed)
            }
            Self::Delete(key) => {
                feeds::rewrite(rows, &feed, key, Rewrite::Delete).await.map(Outcome::Changed)
            }
            Self::Publish { after, limit } => {
                feeds::publish(rows, &feed, after.as_ref(), *limit).await.map(Outcome::Published)
            }
            Self::Fetch { after, limit } => {
                feeds::fetch(rows, &feed, *after, *limit).await.map(Outcome::Fetched)
            }
            Self::Forget(through) => {
                let forgotten = feeds::forget(rows, &feed, *through, usize::MAX).await;
                forgotten.map(|_forgotten| Outcome::Forgotten)
            }
        };
        done.unwrap_or_else(|never: Never| match never {})
    }
}

/// The store fails no request by itself: a scenario ends the rule instead.
#[derive(Debug)]
pub(crate) enum Never {}

/// The rows of a rule that runs again.
struct Rows<'a> {
    /// Whether readers may see a publication in part.
    is_partial: bool,
    answers: RefCell<Vec<Answer>>,
    /// The number of requests in this run.
    at: Cell<usize>,
    /// Until it has executed a request.
    store: RefCell<Option<&'a mut Store>>,
    next: RefCell<Option<Request>>,
    /// What a seeded bug has read too early.
    first: RefCell<Option<(Option<SequenceRow>, NumberedPage)>>,
    mutation: Option<Mutation>,
}

impl Rows<'_> {
    async fn ask(&self, request: Request) -> Answer {
        let at = self.at.replace(self.at.get() + 1);
        let known = self.answers.borrow().get(at).cloned();
        if let Some(answer) = known {
            return answer;
        }
        let store = self.store.borrow_mut().take();
        let Some(answer) = store.and_then(|store| store.answer(&request, self.mutation)) else {
            self.next.replace(Some(request));
            return pending().await;
        };
        self.answers.borrow_mut().push(answer.clone());
        answer
    }

    async fn is_done(&self, request: Request) -> bool {
        matches!(self.ask(request).await, Answer::Is(true))
    }

    async fn row(&self, request: Request) -> Option<(KeyRow, Option<FeedValue>)> {
        if let Answer::Key(row) = self.ask(request).await { row } else { None }
    }

    async fn number(&self, at: FeedSyncId) -> Option<Update> {
        if let Answer::Number(update) = self.ask(Request::Number(at)).await { update } else { None }
    }

    /// Reads numbers as long as there are any, also those that are assigned meanwhile.
    async fn all_numbers(&self, after: FeedSyncId, rows: usize) -> NumberedPage {
        let (mut page, mut at) = (NumberedPage::default(), after);
        while page.updates.len() < rows {
            at = at.plus(1);
            match self.number(at).await {
                Some(update) => page.updates.push(update),
                None if self.is_done(Request::IsLast(at)).await => break,
                None => {}
            }
        }
        page.last = page.updates.last().map(|last| last.feed_sync_id);
        page
    }
}

impl FeedRows for Rows<'_> {
    type Error = Never;

    const BOUNDS: CommitBounds =
        CommitBounds { published: 8, forgotten: 8, fetched: 8, receipts: 8 };

    async fn sequence(&self, _feed: &FeedName) -> Result<Option<SequenceRow>, Never> {
        let first = self.first.borrow().as_ref().map(|(row, _)| *row);
        if let (Some(row), Some(Mutation::HorizonReadFirst)) = (first, self.mutation) {
            return Ok(row);
        }
        let mut page = NumberedPage::default();
        if self.mutation == Some(Mutation::HeadReadAfterRows) && first.is_none() {
            page = self.all_numbers(FeedSyncId::NONE, usize::MAX).await;
        }
        let Answer::Sequence(row) = self.ask(Request::Sequence).await else { return Ok(None) };
        self.first.borrow_mut().get_or_insert((row, page));
        Ok(row)
    }

    async fn key(&self, _feed: &FeedName, key: &FeedKey) -> Result<Option<KeyRow>, Never> {
        Ok(self.row(Request::Key(key.clone())).await.map(|(row, _)| row))
    }

    async fn value(
        &self,
        _feed: &FeedName,
        key: &FeedKey,
        row: KeyRow,
    ) -> Result<Option<Option<FeedValue>>, Never> {
        let there = self.row(Request::Value(key.clone())).await;
        Ok(there.filter(|(there, _)| *there == row).map(|(_, value)| value))
    }

    async fn pending(
        &self,
        _feed: &FeedName,
        after: Option<&FeedKey>,
        limit: usize,
        _refused: &BTreeSet<UnpublishedKey>,
    ) -> Result<PendingPage, Never> {
        let request = Request::Pending { after: after.cloned(), limit };
        let Answer::Pending(page) = self.ask(request).await else {
            return Ok(PendingPage::default());
        };
        Ok(page)
    }

    async fn numbered(
        &self,
        _feed: &FeedName,
        after: FeedSyncId,
        last: FeedSyncId,
        limit: PageLimit,
    ) -> Result<NumberedPage, Never> {
        Ok(match self.mutation {
            Some(Mutation::HeadReadAfterRows) => {
                let (_, mut page) = self.first.borrow().clone().unwrap_or_default();
                page.updates.retain(|update| update.feed_sync_id > after);
                page.is_all = true;
                page
            }
            Some(Mutation::ReaderWithoutHead) => self.all_numbers(after, limit.rows).await,
            _ => {
                let (mut page, mut at) = (NumberedPage::default(), after);
                while at < last && page.updates.len() < limit.rows {
                    at = at.plus(1);
                    page.updates.extend(self.number(at).await);
                }
                (page.last, page.is_all) = (Some(at), at == last);
                if self.mutation == Some(Mutation::PageByKey) {
                    page.updates.sort_by(|one, other| one.key.cmp(&other.key));
                }
                page
            }
        })
    }

    async fn raise_horizon(
        &self,
        _feed: &FeedName,
        _read: &Sequence,
        raised: &Sequence,
    ) -> Result<bool, Never> {
        Ok(self.is_done(Request::RaiseHorizon(raised.horizon)).await)
    }

    async fn settle(&self, _feed: &FeedName, row: SequenceRow) -> Result<bool, Never> {
        let is_settled = row.settled == row.sequence.value || !self.is_partial;
        if is_settled || self.mutation == Some(Mutation::LastNotSettled) {
            return Ok(true);
        }
        Ok(self.is_done(Request::Settle(row.sequence)).await)
    }

    async fn commit(&self, change: FeedChange<'_>) -> Result<Committed<Never>, Never> {
        let settled = match change.sequence {
            SequenceChange::Advance { to, .. } => Some(to),
            _ => None,
        };
        if !self.is_done(Request::of(&change)).await {
            return Ok(Committed::Refused(Refused::default()));
        }
        if let Some(sequence) = settled.filter(|_| self.is_partial) {
            self.ask(Request::Settle(sequence)).await;
        }
        Ok(Committed::Done)
    }

    async fn next_attempt(
        &self,
        _attempts: &mut Attempts,
        _lost: Option<Never>,
    ) -> Result<(), Never> {
        Ok(())
    }

    async fn receipts_due(
        &self,
        _now: Time,
        _after: Option<Cursor>,
    ) -> Result<(Vec<ExpectedReceipt>, Option<Cursor>), Never> {
        Ok((Vec::new(), None))
    }

    async fn remove_ended(&self, _now: Time) -> Result<(u64, bool), Never> {
        Ok((0, false))
    }
}

impl Request {
    fn of(change: &FeedChange<'_>) -> Self {
        let FeedChange { keys, sequence, .. } = change;
        match (sequence, &keys[..]) {
            (SequenceChange::Advance { read, to }, keys) => Self::Publish(Draft {
                publication: Publication {
                    read: *read,
                    sequence: *to,
                    assignments: keys.iter().map(Draft::assignment).collect(),
                },
                values: keys
                    .iter()
                    .map(|key| key.after.and_then(|(_, value)| value.cloned()))
                    .collect(),
            }),
            (SequenceChange::UncountKeys(_), keys) => Self::Remove(
                keys.iter()
                    .map(|of_key| (of_key.key.clone(), of_key.before.unwrap_or_default().version))
                    .collect(),
            ),
            (_, keys) => Self::Change {
                key: keys[0].key.clone(),
                before: keys[0].before.map(|before| before.version),
                value: keys[0].after.and_then(|(_, value)| value.cloned()),
            },
        }
    }
}
