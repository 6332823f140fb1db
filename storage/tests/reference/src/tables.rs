//! The tables as maps, and what each request does to them.

use std::collections::{BTreeMap, BTreeSet};

use state_machine::feed::table::Row;
use state_machine::feed::{FeedKey, FeedName, FeedSyncId, Sequence, UnpublishedKey, Update};
use state_machine::store::RegisterResult;
use state_machine::{ReceiptRequest, Time, Uaid};
use storage::ExpectedReceipt;
use storage::maintenance::DROPPED;
use storage::record_row::RecordRow;
use storage::registration::NewRecord;
use storage::rules::feed_rows::{
    KeyRow, NumberedPage, PendingPage, PendingRow, SequenceChange, SequenceRow,
};
use storage::rules::record_rows::GuardedChange;
use storage::rules::topics::{Replaces, RowThere};

use crate::request::{Answer, Commit, Conflict, KeyCommit, Request, RowOfMessage};

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Tables {
    pub records: BTreeMap<Uaid, RecordRow>,
    pub feeds: BTreeMap<FeedName, Feed>,
    /// The receipts that are expected, with their deadlines.
    pub expected: BTreeMap<(FeedName, FeedKey), Time>,
    /// The messages of one agent in one month, by their topics or, without one, by their ids.
    pub messages: BTreeMap<String, RowOfMessage>,
    /// Whether readers may see a publication in part, as in DynamoDB: the numbers that no reader may see yet are
    /// [`Feed::hidden`], and the head of a page is the settled number.
    pub is_seen_in_part: bool,
}

/// The rows of one feed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Feed {
    pub keys: BTreeMap<FeedKey, Row>,
    /// None if there is no such feed.
    pub sequence: Option<Sequence>,
    pub settled: FeedSyncId,
    pub hidden: BTreeSet<FeedSyncId>,
}

impl Feed {
    /// That of a feed without a row if there is none.
    pub fn sequence(&self) -> Sequence {
        self.sequence.unwrap_or_default()
    }

    pub fn key_row(&self, key: &FeedKey) -> Option<KeyRow> {
        let row = self.keys.get(key)?;
        Some(KeyRow { version: row.version, number: row.feed_sync_id })
    }

    /// The greatest number in use.
    pub fn greatest(&self) -> FeedSyncId {
        self.keys.values().filter_map(|row| row.feed_sync_id).max().unwrap_or_default()
    }

    /// Whether readers see every update up to a number.
    fn is_whole(&self, up_to: FeedSyncId) -> bool {
        self.hidden.first().is_none_or(|hidden| up_to < *hidden)
    }

    fn pending(&self, after: Option<&FeedKey>, rows: usize) -> PendingPage {
        let waiting = self.keys.iter().filter(|(key, row)| {
            row.feed_sync_id.is_none() && after.is_none_or(|after| *key > after)
        });
        let mut waiting = waiting.map(|(key, row)| PendingRow {
            pending: UnpublishedKey { key: key.clone(), version: row.version },
            value: row.value.clone(),
        });
        let rows: Vec<_> = waiting.by_ref().take(rows).collect();
        let last = rows.last().map(|last| last.pending.key.clone());
        PendingPage { rows, is_all: waiting.next().is_none(), last }
    }

    fn numbered(&self, after: FeedSyncId, last: FeedSyncId, rows: usize) -> NumberedPage {
        let is_in = |number: &FeedSyncId| {
            after < *number && *number <= last && !self.hidden.contains(number)
        };
        let updates = self.keys.iter().filter_map(|(key, row)| {
            let feed_sync_id = row.feed_sync_id.filter(is_in)?;
            let Row { version, value, .. } = row.clone();
            Some(Update { feed_sync_id, key: key.clone(), version, value })
        });
        let mut updates: Vec<_> = updates.collect();
        updates.sort_by_key(|update| update.feed_sync_id);
        let is_all = updates.len() <= rows;
        updates.truncate(rows);
        NumberedPage { is_all, last: updates.last().map(|last| last.feed_sync_id), updates }
    }

    fn change_key(&mut self, KeyCommit { key, after, .. }: &KeyCommit) {
        match after {
            Some((KeyRow { version, number }, value)) => {
                let row = Row { value: value.clone(), version: *version, feed_sync_id: *number };
                self.keys.insert(key.clone(), row);
            }
            None => drop(self.keys.remove(key)),
        }
    }

    fn admits(&self, change: &SequenceChange) -> bool {
        match (change, self.sequence) {
            (SequenceChange::None, _) | (SequenceChange::CountKey { .. }, None) => true,
            (SequenceChange::CountKey { keys_max, forgotten }, Some(there)) => {
                there.keys < *keys_max && there.forgotten == *forgotten
            }
            (SequenceChange::RecountKey, there) => there.is_some(),
            (SequenceChange::UncountKeys(count), there) => {
                there.is_some_and(|there| there.keys >= *count as u64)
            }
            (SequenceChange::Advance { read, .. }, there) => {
                there.is_some_and(|there| there.version == read.version)
            }
        }
    }

    fn change_sequence(&mut self, change: &SequenceChange) {
        let mut sequence = self.sequence();
        match change {
            SequenceChange::None => return,
            SequenceChange::CountKey { .. } | SequenceChange::RecountKey => sequence.keys += 1,
            SequenceChange::UncountKeys(count) => sequence.keys -= *count as u64,
            SequenceChange::Advance { to, .. } => {
                (sequence.value, sequence.version) = (to.value, to.version);
            }
        }
        self.sequence = Some(sequence);
    }
}

impl Tables {
    /// Executes a request. None while it must wait for a publication that readers see in part.
    pub fn execute(&mut self, request: &Request) -> Option<Answer> {
        Some(match request {
            Request::Record(uaid) => Answer::Record(self.records.get(uaid).cloned().map(Box::new)),
            Request::Records => Answer::Records(self.records.values().cloned().collect()),
            Request::Change(change) => Answer::Changed(self.change(change).map(Box::new)),
            Request::Register(new) => Answer::Registered(Box::new(self.register(new))),
            Request::RemoveRecord(uaid, recipient) => {
                let there = self.records.get(uaid);
                let is_it = there.is_some_and(|there| {
                    recipient.is_none() || there.recipient.as_ref() == recipient.as_ref()
                });
                Answer::Is(is_it && self.records.remove(uaid).is_some())
            }
            Request::RemoveMarked(uaid) => {
                let there = self.records.get(uaid);
                let is_marked = there.is_some_and(|there| there.router_type == DROPPED);
                Answer::Is(is_marked && self.records.remove(uaid).is_some())
            }
            Request::PutMessage(message, replaces) => Answer::Is(self.put(message, *replaces)),
            Request::Message(message) => {
                let there = self.messages.get(&message.place());
                let row = |there: &RowOfMessage| RowThere {
                    id: there.id,
                    expected: there.expected.clone(),
                };
                Answer::Message(there.map(row))
            }
            Request::DeleteMessage(message) => {
                let place = message.place();
                let is_it = self.messages.get(&place).is_some_and(|there| there.id == message.id);
                Answer::Is(is_it && self.messages.remove(&place).is_some())
            }
            Request::Due(now) => {
                let due = self.expected.iter().filter(|(_, deadline)| **deadline <= *now);
                let due = due.map(|((subscription, key), deadline)| {
                    let (subscription, key) = (subscription.clone(), key.clone());
                    let request = ReceiptRequest { subscription, key };
                    ExpectedReceipt { request, deadline: *deadline }
                });
                Answer::Due(due.collect())
            }
            Request::Ended(now) => {
                let ended = self.feeds.iter().filter_map(|(name, feed)| {
                    let keys = feed.sequence?.keys;
                    name.receipts_end().filter(|end| end <= now).map(|_| (name.clone(), keys))
                });
                Answer::Ended(ended.collect())
            }
            of_feed => return self.of_feed(of_feed),
        })
    }

    fn of_feed(&mut self, request: &Request) -> Option<Answer> {
        let is_seen_in_part = self.is_seen_in_part;
        if let Request::Commit(commit) = request {
            return Some(Answer::Committed(self.commit(commit)));
        }
        // A feed without a row stays one.
        let mut none = Feed::default();
        let feed = self.feeds.get_mut(request.feed()?).unwrap_or(&mut none);
        Some(match request {
            Request::Sequence(_) => {
                let settled = if is_seen_in_part { feed.settled } else { feed.sequence().value };
                let row = |sequence| SequenceRow { sequence, settled };
                Answer::Sequence(feed.sequence.map(row))
            }
            Request::Key(_, key) | Request::Value(_, key) => {
                let value = |row| (row, feed.keys[key].value.clone());
                Answer::Key(feed.key_row(key).map(value))
            }
            Request::Pending { after, rows, .. } => {
                Answer::Pending(feed.pending(after.as_ref(), *rows))
            }
            Request::Numbered { after, last, rows, .. } => {
                Answer::Numbered(feed.numbered(*after, *last, *rows))
            }
            Request::RaiseHorizon { read, raised, .. } => {
                let there = feed.sequence?;
                let is_as_read = (there.horizon, there.forgotten) == (read.horizon, read.forgotten);
                if is_as_read {
                    let Sequence { horizon, forgotten, .. } = *raised;
                    feed.sequence = Some(Sequence { horizon, forgotten, ..there });
                }
                Answer::Is(is_as_read)
            }
            Request::Settle(_, sequence) => {
                if !feed.is_whole(sequence.value) {
                    return None;
                }
                let is_last = feed.sequence().version == sequence.version;
                if is_last {
                    feed.settled = sequence.value;
                }
                Answer::Is(is_last)
            }
            Request::RemoveKeys(_) => Answer::Is(!std::mem::take(&mut feed.keys).is_empty()),
            Request::RemoveSequence(_, keys) => {
                let is_as_read = feed.sequence.is_some_and(|there| there.keys == *keys);
                if is_as_read {
                    feed.sequence = None;
                }
                Answer::Is(is_as_read)
            }
            other => unreachable!("{other:?} is not of a feed"),
        })
    }

    fn change(&mut self, change: &GuardedChange) -> Option<RecordRow> {
        let there = self.records.get_mut(&change.uaid)?;
        let before = there.clone();
        let holds = change.guards.iter().all(|guard| guard.holds(there));
        holds.then(|| {
            *there = change.change.apply(before.clone());
            before
        })
    }

    fn register(&mut self, new: &NewRecord) -> RegisterResult {
        let result = new.over(self.records.get(&new.uaid));
        if let RegisterResult::Registered(record, _) = &result {
            self.records.insert(new.uaid, record.clone().into());
        }
        result
    }

    fn commit(&mut self, commit: &Commit) -> Result<(), Conflict> {
        let none = Feed::default();
        let feed = self.feeds.get(&commit.feed).unwrap_or(&none);
        let place = |expected: &ExpectedReceipt| {
            let ReceiptRequest { subscription, key } = expected.request.clone();
            (subscription, key)
        };
        let is_refused = commit.expected.as_ref().is_some_and(|(is_added, expected)| {
            let there = self.expected.get(&place(expected));
            if *is_added { there.is_some() } else { there != Some(&expected.deadline) }
        });
        let keys = commit
            .keys
            .iter()
            .enumerate()
            .filter(|(_, change)| feed.key_row(&change.key) != change.before);
        let keys: Vec<_> = keys.map(|(at, _)| at).collect();
        if is_refused || !keys.is_empty() || !feed.admits(&commit.sequence) {
            return Err(Conflict { expected: is_refused, keys });
        }
        match &commit.expected {
            None => {}
            Some((true, expected)) => {
                self.expected.insert(place(expected), expected.deadline);
            }
            Some((false, expected)) => drop(self.expected.remove(&place(expected))),
        }
        let feed = self.feeds.entry(commit.feed.clone()).or_default();
        commit.keys.iter().for_each(|change| feed.change_key(change));
        feed.change_sequence(&commit.sequence);
        if let (SequenceChange::Advance { .. }, true) = (&commit.sequence, self.is_seen_in_part) {
            let rows = commit.keys.iter().filter_map(|change| change.after.as_ref());
            feed.hidden.extend(rows.filter_map(|(row, _)| row.number));
        }
        Ok(())
    }

    fn put(&mut self, message: &RowOfMessage, replaces: Replaces) -> bool {
        let place = message.place();
        let may_replace = match (self.messages.get(&place), replaces) {
            (None, Replaces::Any | Replaces::OlderWithoutReceipt) => true,
            (None, Replaces::Message(_)) => false,
            (Some(_), Replaces::Any) => true,
            (Some(there), Replaces::OlderWithoutReceipt) => {
                there.id < message.id && there.expected.is_none()
            }
            (Some(there), Replaces::Message(id)) => there.id == id,
        };
        if may_replace {
            self.messages.insert(place, message.clone());
        }
        may_replace
    }
}

impl RowOfMessage {
    fn place(&self) -> String {
        self.topic.map_or_else(|| self.id.to_string(), |topic| topic.to_string())
    }
}

impl Request {
    fn feed(&self) -> Option<&FeedName> {
        match self {
            Self::Sequence(feed)
            | Self::Key(feed, _)
            | Self::Value(feed, _)
            | Self::Pending { feed, .. }
            | Self::Numbered { feed, .. }
            | Self::RaiseHorizon { feed, .. }
            | Self::Settle(feed, _)
            | Self::RemoveKeys(feed)
            | Self::RemoveSequence(feed, _) => Some(feed),
            _ => None,
        }
    }
}
