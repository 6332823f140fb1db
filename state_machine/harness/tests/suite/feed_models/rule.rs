//! A rule of the storage crate on the model's store: the code that servers run, one request a step.

use std::cell::{Cell, RefCell};

use state_machine::feed::{
    FeedKey, FeedName, FeedPage, FeedSyncId, FeedValue, PublishResult, Update, Version, WriteResult,
};
use state_machine::store::PageLimit;
use storage::rules::feed_rows::{NumberedPage, SequenceChange};
use storage::rules::feeds::{self, Rewrite};
use storage_reference::{Answer, Commit, Execute, Replay, Request, Rows, Suspended};

use super::mutation::Mutation;
use super::store::Store;

/// A rule, and how far it is.
pub(crate) type Rule = Suspended<FeedCall>;

/// The call of a rule, on a store with these properties.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct FeedCall {
    pub(crate) call: Call,
    pub(crate) is_seen_in_part: bool,
    pub(crate) mutation: Option<Mutation>,
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
    /// Others have changed the rows at each attempt.
    Refused,
}

/// The maximum number of keys in the feed: more than any scenario has.
const KEYS_MAX: u64 = 8;

/// The store executes the next request of a rule, unless it waits for others. Returns what the rule returns, if it ends.
pub(crate) fn goes_on(
    rule: &mut Rule,
    store: &mut Store,
    mutation: Option<Mutation>,
) -> Option<Outcome> {
    let answer = store.execute(&rule.next, mutation)?;
    rule.goes_on(answer)
}

/// The transaction of a publication, if it is sent.
pub(crate) fn publication(rule: &Rule) -> Option<&Commit> {
    match &*rule.next {
        Request::Commit(commit) if read_version(commit).is_some() => Some(commit),
        _ => None,
    }
}

/// The version of the sequence that a publication has read.
pub(crate) fn read_version(commit: &Commit) -> Option<u64> {
    match commit.sequence {
        SequenceChange::Advance { read, .. } => Some(read.version),
        _ => None,
    }
}

impl storage_reference::Call for FeedCall {
    type Outcome = Outcome;

    async fn run(&self, replay: &Replay) -> Outcome {
        let requests = Requests {
            replay,
            call: self,
            is_committed: Cell::new(false),
            first: RefCell::new(None),
        };
        let (rows, feed) = (Rows(&requests), FeedName::broadcasts());
        let done = match &self.call {
            Call::Write(key, value) => {
                let written = feeds::write(&rows, &feed, key, value, KEYS_MAX).await;
                written.map(|written| match written {
                    WriteResult::Done(version) => Outcome::Changed(Some(version)),
                    full => panic!("a scenario has fewer than {KEYS_MAX} keys: {full:?}"),
                })
            }
            Call::Republish(key) => {
                feeds::rewrite(&rows, &feed, key, Rewrite::Republish).await.map(Outcome::Changed)
            }
            Call::Delete(key) => {
                feeds::rewrite(&rows, &feed, key, Rewrite::Delete).await.map(Outcome::Changed)
            }
            Call::Publish { after, limit } => {
                feeds::publish(&rows, &feed, after.as_ref(), *limit).await.map(Outcome::Published)
            }
            Call::Fetch { after, limit } => {
                feeds::fetch(&rows, &feed, *after, *limit).await.map(Outcome::Fetched)
            }
            Call::Forget(through) => {
                let forgotten = feeds::forget(&rows, &feed, *through, usize::MAX).await;
                forgotten.map(|_forgotten| Outcome::Forgotten)
            }
        };
        done.unwrap_or(Outcome::Refused)
    }
}

/// The requests of a rule. A reader of several rows reads each of them at another time.
struct Requests<'a> {
    replay: &'a Replay,
    call: &'a FeedCall,
    /// Whether the last answer was that of a transaction that was executed.
    is_committed: Cell<bool>,
    /// What a seeded bug has read too early.
    first: RefCell<Option<(Answer, NumberedPage)>>,
}

impl Execute for Requests<'_> {
    fn is_seen_in_part(&self) -> bool {
        self.call.is_seen_in_part
    }

    async fn execute(&self, request: Request) -> Answer {
        let mutation = self.call.mutation;
        match request {
            Request::Settle(..)
                if mutation == Some(Mutation::LastNotSettled) && !self.is_committed.get() =>
            {
                Answer::Is(true)
            }
            Request::Sequence(_) => self.sequence(request).await,
            Request::Numbered { after, last, rows, .. } => {
                Answer::Numbered(self.numbered(after, last, rows).await)
            }
            request => {
                let answer = self.replay.execute(request).await;
                self.is_committed.set(matches!(answer, Answer::Committed(Ok(()))));
                answer
            }
        }
    }
}

impl Requests<'_> {
    async fn sequence(&self, request: Request) -> Answer {
        let first = self.first.borrow().as_ref().map(|(row, _)| row.clone());
        if let (Some(row), Some(Mutation::HorizonReadFirst)) = (&first, self.call.mutation) {
            return row.clone();
        }
        let mut page = NumberedPage::default();
        if self.call.mutation == Some(Mutation::HeadReadAfterRows) && first.is_none() {
            page = self.all_numbers(FeedSyncId::NONE, usize::MAX).await;
        }
        let row = self.replay.execute(request).await;
        self.first.borrow_mut().get_or_insert((row.clone(), page));
        row
    }

    async fn numbered(&self, after: FeedSyncId, last: FeedSyncId, rows: usize) -> NumberedPage {
        match self.call.mutation {
            Some(Mutation::HeadReadAfterRows) => {
                let (_, mut page) = self.first.borrow().clone().expect("the head is read before");
                page.updates.retain(|update| update.feed_sync_id > after);
                page.is_all = true;
                page
            }
            Some(Mutation::ReaderWithoutHead) => self.all_numbers(after, rows).await,
            _ => {
                let (mut page, mut at) = (NumberedPage::default(), after);
                while at < last && page.updates.len() < rows {
                    at = at.plus(1);
                    page.updates.extend(self.first_number(FeedSyncId(at.0 - 1), at).await);
                }
                (page.last, page.is_all) = (Some(at), at == last);
                if self.call.mutation == Some(Mutation::PageByKey) {
                    page.updates.sort_by(|one, other| one.key.cmp(&other.key));
                }
                page
            }
        }
    }

    /// The first number after `after` and up to `last`.
    async fn first_number(&self, after: FeedSyncId, last: FeedSyncId) -> Option<Update> {
        let request = Request::Numbered { feed: FeedName::broadcasts(), after, last, rows: 1 };
        match self.replay.execute(request).await {
            Answer::Numbered(mut page) => page.updates.pop(),
            other => panic!("{other:?} is no page"),
        }
    }

    /// Reads numbers as long as there are any, also those that are assigned meanwhile.
    async fn all_numbers(&self, after: FeedSyncId, rows: usize) -> NumberedPage {
        let (mut page, mut at) = (NumberedPage::default(), after);
        while page.updates.len() < rows {
            at = at.plus(1);
            match self.first_number(FeedSyncId(at.0 - 1), at).await {
                Some(update) => page.updates.push(update),
                None if self.first_number(at, FeedSyncId(u64::MAX)).await.is_none() => break,
                None => {}
            }
        }
        page.last = page.updates.last().map(|last| last.feed_sync_id);
        page
    }
}
