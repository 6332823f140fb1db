//! A publication in a store without snapshots: it reads the sequence, then the unpublished keys,
//! then sends the transaction.
//!
//! If readers may see a transaction in part, there are two more steps. Before the transaction the
//! previous publication is settled, unless it is settled already, and after it the new one.

use state_machine::feed::{FeedKey, Publication, PublishResult, Sequence};
use state_machine::store::StoreFailed;

use super::mutation::Mutation;
use super::store::{Draft, Store};

/// A publisher's order, and the steps that the store has executed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Publish {
    after: Option<FeedKey>,
    limit: usize,
    pub(crate) stage: Stage,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    Asked,
    /// The sequence was read.
    Begun {
        sequence: Sequence,
        is_settled: bool,
    },
    /// The unpublished keys were read, and the transaction was sent.
    Drafted(Draft),
    /// The transaction is committed and not settled.
    Committed(Draft),
    /// The answer is on its way to the publisher.
    Answered(Answer),
}

/// The store's answer to a publisher.
pub(crate) type Answer = Result<Option<PublishResult>, StoreFailed>;

impl Publish {
    pub(crate) fn new(after: Option<FeedKey>, limit: usize) -> Self {
        Self { after, limit, stage: Stage::Asked }
    }

    /// The store executes one step. After a conflict the publication starts again by itself.
    pub(crate) fn goes_on(&mut self, store: &mut Store, mutation: Option<Mutation>) {
        self.stage = match &self.stage {
            Stage::Asked => begin(store, mutation),
            Stage::Begun { sequence, is_settled: false } => {
                if !store.is_whole(sequence.value) && mutation != Some(Mutation::SettledUnseen) {
                    return;
                }
                let is_settled = store.settle(mutation, *sequence);
                let begun = Stage::Begun { sequence: *sequence, is_settled };
                if is_settled { begun } else { Stage::Asked }
            }
            Stage::Begun { sequence, is_settled: true } => {
                self.draft_of(store, *sequence, mutation)
            }
            Stage::Drafted(draft) => match store.commit(mutation, draft) {
                Ok(()) if store.settled.is_some() => Stage::Committed(draft.clone()),
                Ok(()) => outcome(draft),
                Err(_) => Stage::Asked,
            },
            Stage::Committed(draft) => {
                if draft.numbers().any(|number| store.hidden.contains(&number)) {
                    return;
                }
                store.settle(mutation, draft.publication.sequence);
                outcome(draft)
            }
            Stage::Answered(answer) => Stage::Answered(answer.clone()),
        };
    }

    /// The transaction, if it was sent.
    pub(crate) fn draft(&self) -> Option<&Draft> {
        match &self.stage {
            Stage::Drafted(draft) => Some(draft),
            Stage::Asked | Stage::Begun { .. } | Stage::Committed(_) | Stage::Answered(_) => None,
        }
    }

    fn draft_of(&self, store: &Store, sequence: Sequence, mutation: Option<Mutation>) -> Stage {
        let mut waiting = store.table.pending(self.after.as_ref(), self.limit + 1);
        let is_all = waiting.len() <= self.limit || mutation == Some(Mutation::NothingBehind);
        waiting.truncate(self.limit);
        let value = |key: &FeedKey| store.table.row(key.as_str())?.value.clone();
        let values = waiting.iter().map(|pending| value(&pending.key)).collect();
        match Publication::of(sequence, waiting) {
            Some(publication) => Stage::Drafted(Draft { publication, values, is_all }),
            None => {
                let none = PublishResult { count: 0, head: sequence.value, next: None };
                Stage::Answered(Ok(Some(none)))
            }
        }
    }
}

fn begin(store: &Store, mutation: Option<Mutation>) -> Stage {
    let sequence = store.sequence(mutation);
    if sequence.keys == 0 && sequence.version == 0 {
        return Stage::Answered(Ok(None));
    }
    let is_settled = store.settled.is_none_or(|settled| settled == sequence.value)
        || mutation == Some(Mutation::LastNotSettled);
    Stage::Begun { sequence, is_settled }
}

fn outcome(draft: &Draft) -> Stage {
    Stage::Answered(Ok(Some(draft.publication.outcome(draft.is_all))))
}
