//! What a feed promises to its writers and followers, each promise under one name.
//!
//! [`AcknowledgedWrites`] records the answers to writers, a [`Replica`] the pages that a consumer
//! applied. Neither reads a store.

use std::collections::BTreeMap;

use harness::invariants::Broken;
use harness::sentences;
use state_machine::feed::{FeedKey, FeedPage, FeedSyncId, FeedValue, Sequence, Update, Version};
use storage_reference::Feed;

sentences! {
    /// A promise that a feed makes to its writers and followers.
    Promise:
    SequenceOnlyGrows, "sequence_only_grows",
        "A sequence never decreases, and no number above it is in use.";
    NumberedOnce, "numbered_once",
        "A number is given to one change of one key, and never again.";
    OneNumberAKey, "one_number_a_key",
        "A key has at most one number, which no other key has.";
    VersionsOnlyGrow, "versions_only_grow",
        "Each change of a key has a greater version than those before it, for its writers and for each consumer.";
    NumbersRunForward, "numbers_run_forward",
        "The numbers of a page ascend and are greater than the cursor of the request, and the cursor never decreases.";
    ChangesArePublished, "changes_are_published",
        "Every key that changed is given a number.";
    LastStateArrives, "last_state_arrives",
        "Every consumer ends with the last value and version of every key, also of those that were deleted.";
    OneAtATime, "one_at_a_time",
        "A publisher has one publication under way at most, a consumer one page.";
    ComesToRest, "comes_to_rest",
        "Publishers and consumers send no requests once nothing changes.";
    NothingDueBeforeDeadline, "nothing_due_before_deadline",
        "Until its deadline, time alone changes nothing in a publisher or a consumer.";
}

/// The writes that the feed acknowledged, with the version of each key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct AcknowledgedWrites {
    last: BTreeMap<FeedKey, (Option<FeedValue>, Version)>,
}

/// The state of a consumer: the last update it received for each key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Replica {
    known: BTreeMap<FeedKey, Update>,
}

impl AcknowledgedWrites {
    /// Records that a key was set, or deleted if it has no value. The writer's answer contained the
    /// version.
    pub(super) fn changed(
        &mut self,
        key: FeedKey,
        value: Option<FeedValue>,
        version: Version,
    ) -> Result<(), Broken<Promise>> {
        let before = self.last.get(&key).map(|(_, before)| *before);
        if before.is_some_and(|before| version <= before) {
            let detail = format!("{key} has version {version} after one that was not less");
            return Err(Promise::VersionsOnlyGrow.broken(detail));
        }
        self.last.insert(key, (value, version));
        Ok(())
    }

    /// Records that a key was republished unchanged.
    pub(super) fn republished(
        &mut self,
        key: &FeedKey,
        version: Version,
    ) -> Result<(), Broken<Promise>> {
        let value = self.last.get(key).and_then(|(value, _)| value.clone());
        self.changed(key.clone(), value, version)
    }

    /// Checks that every write has a number, or was a deletion that is forgotten, once nothing is in progress.
    pub(super) fn is_published(&self, feed: &Feed) -> Result<(), Broken<Promise>> {
        let waits = |(key, (value, _)): &(&FeedKey, &(Option<FeedValue>, Version))| {
            let row = feed.keys.get(*key);
            row.map_or(value.is_some(), |row| row.feed_sync_id.is_none())
        };
        match self.last.iter().find(waits) {
            Some((key, _)) => {
                Err(Promise::ChangesArePublished.broken(format!("{key} waits for its number")))
            }
            None => Ok(()),
        }
    }
}

impl Replica {
    /// Applies a page that was fetched with the cursor `after`.
    pub(super) fn apply(
        &mut self,
        after: FeedSyncId,
        page: &FeedPage,
    ) -> Result<(), Broken<Promise>> {
        runs_forward(after, page)?;
        page.updates.iter().try_for_each(|update| self.learn(update))
    }

    /// Checks that the replica has every write, once everything is published and consumed. A deletion
    /// that the table has forgotten may be missing.
    pub(super) fn is_complete(
        &self,
        ledger: &AcknowledgedWrites,
        feed: &Feed,
    ) -> Result<(), Broken<Promise>> {
        ledger.last.iter().try_for_each(|(key, (value, version))| {
            let detail = match self.known.get(key) {
                None if value.is_none() && !feed.keys.contains_key(key) => return Ok(()),
                None => format!("{key} was not received"),
                Some(known) if known.value != *value => {
                    format!("{key} is {value:?} and was last seen as {:?}", known.value)
                }
                // A republication increments the version too.
                Some(known) if known.version <= *version => {
                    format!("{key} was changed as {version} and last seen as {}", known.version)
                }
                Some(_) => return Ok(()),
            };
            Err(Promise::LastStateArrives.broken(detail))
        })
    }

    fn learn(&mut self, update: &Update) -> Result<(), Broken<Promise>> {
        let known = self.known.get(&update.key).map(|known| known.version);
        if let Some(known) = known.filter(|known| update.version < *known) {
            let detail = format!("{} was received as {} after {known}", update.key, update.version);
            return Err(Promise::VersionsOnlyGrow.broken(detail));
        }
        self.known.insert(update.key.clone(), update.clone());
        Ok(())
    }
}

/// Checks one step of a table, whatever the step was.
pub(super) fn keeps_its_numbers(before: &Feed, after: &Feed) -> Result<(), Broken<Promise>> {
    sequence_grows(before.sequence(), after)?;
    let mut owners = BTreeMap::new();
    for (key, row) in &after.keys {
        let Some(number) = row.feed_sync_id else { continue };
        if let Some(other) = owners.insert(number, key) {
            let detail = format!("{number} is the number of {other} and of {key}");
            return Err(Promise::OneNumberAKey.broken(detail));
        }
        let was = before.keys.get(key).map(|row| (row.feed_sync_id, row.version));
        let is_new = was != Some((Some(number), row.version));
        if is_new && number <= before.sequence().value {
            let detail = format!("{key} is given {number}, which was given before");
            return Err(Promise::NumberedOnce.broken(detail));
        }
    }
    Ok(())
}

fn sequence_grows(before: Sequence, after: &Feed) -> Result<(), Broken<Promise>> {
    let now = after.sequence();
    if now.value < before.value || now.version < before.version {
        let detail = format!("it was {before:?} and is {now:?}");
        return Err(Promise::SequenceOnlyGrows.broken(detail));
    }
    let greatest = after.greatest();
    if now.value < greatest {
        let detail = format!("{greatest} is in use and the sequence is at {}", now.value);
        return Err(Promise::SequenceOnlyGrows.broken(detail));
    }
    Ok(())
}

fn runs_forward(after: FeedSyncId, page: &FeedPage) -> Result<(), Broken<Promise>> {
    let numbers = page.updates.iter().map(|update| update.feed_sync_id);
    let mut last = after;
    for number in numbers {
        if number <= last {
            let detail = format!("{number} follows {last}");
            return Err(Promise::NumbersRunForward.broken(detail));
        }
        last = number;
    }
    if page.cursor < last {
        let detail = format!("the page ends with {last}, its cursor is {}", page.cursor);
        return Err(Promise::NumbersRunForward.broken(detail));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use state_machine::feed::{Publication, Table};

    #[test]
    fn a_number_that_was_given_up_is_not_given_again() {
        let mut table = Table::default();
        write(&mut table, "a");
        publish(&mut table);
        write(&mut table, "a");
        let before = table.clone();
        let mut again = Publication::of(table.sequence(), table.pending(None, 1)).unwrap();
        publish(&mut table);
        assert_eq!(keeps_its_numbers(&feed(&before), &feed(&table)), Ok(()));
        again.assignments[0].feed_sync_id = FeedSyncId(1);
        let mut table = before.clone();
        table.commit(&again).unwrap();
        assert_eq!(
            promise(keeps_its_numbers(&feed(&before), &feed(&table))),
            Promise::NumberedOnce
        );
    }

    #[test]
    fn two_keys_with_one_number_are_noticed() {
        let before = Table::default();
        let mut table = before.clone();
        write(&mut table, "a");
        write(&mut table, "b");
        let mut twice = Publication::of(table.sequence(), table.pending(None, 2)).unwrap();
        twice.assignments[1].feed_sync_id = FeedSyncId(1);
        table.commit(&twice).unwrap();
        assert_eq!(
            promise(keeps_its_numbers(&feed(&before), &feed(&table))),
            Promise::OneNumberAKey
        );
    }

    #[test]
    fn a_sequence_that_decreases_or_falls_behind_is_noticed() {
        let mut table = Table::default();
        write(&mut table, "a");
        publish(&mut table);
        let fresh = Table::default();
        assert_eq!(
            promise(keeps_its_numbers(&feed(&table), &feed(&fresh))),
            Promise::SequenceOnlyGrows
        );
        write(&mut table, "a");
        let mut beyond = Publication::of(table.sequence(), table.pending(None, 1)).unwrap();
        beyond.assignments[0].feed_sync_id = FeedSyncId(9);
        let before = table.clone();
        table.commit(&beyond).unwrap();
        assert_eq!(
            promise(keeps_its_numbers(&feed(&before), &feed(&table))),
            Promise::SequenceOnlyGrows
        );
    }

    #[test]
    fn a_version_is_given_to_one_writer() {
        let mut ledger = AcknowledgedWrites::default();
        assert_eq!(ledger.changed(key("a"), value("1"), Version(1)), Ok(()));
        assert_eq!(ledger.republished(&key("a"), Version(3)), Ok(()));
        let again = ledger.changed(key("a"), None, Version(3));
        assert_eq!(promise(again), Promise::VersionsOnlyGrow);
    }

    #[test]
    fn a_page_must_run_forward() {
        for (numbers, cursor) in [(&[2, 1][..], 2), (&[1, 1], 1), (&[1], 0), (&[], 0)] {
            let page = page(numbers, cursor);
            let mut replica = Replica::default();
            let after = FeedSyncId(u64::from(numbers.is_empty()));
            assert_eq!(promise(replica.apply(after, &page)), Promise::NumbersRunForward);
        }
        let mut replica = Replica::default();
        assert_eq!(replica.apply(FeedSyncId(1), &page(&[2, 4], 7)), Ok(()));
        let older = page(&[5], 7);
        assert_eq!(replica.apply(FeedSyncId(4), &older), Ok(()));
        assert_eq!(promise(replica.apply(FeedSyncId(4), &older_version(older))), {
            Promise::VersionsOnlyGrow
        });
    }

    #[test]
    fn a_consumer_must_have_the_last_value_in_its_published_version() {
        let mut ledger = AcknowledgedWrites::default();
        ledger.changed(key("k"), value("1"), Version(1)).unwrap();
        let mut replica = Replica::default();
        assert_eq!(
            promise(replica.is_complete(&ledger, &Feed::default())),
            Promise::LastStateArrives
        );
        replica.apply(FeedSyncId(0), &page(&[1], 1)).unwrap();
        assert_eq!(replica.is_complete(&ledger, &Feed::default()), Ok(()));
        ledger.republished(&key("k"), Version(3)).unwrap();
        assert_eq!(
            promise(replica.is_complete(&ledger, &Feed::default())),
            Promise::LastStateArrives
        );
        ledger.changed(key("k"), None, Version(4)).unwrap();
        assert_eq!(
            promise(replica.is_complete(&ledger, &Feed::default())),
            Promise::LastStateArrives
        );
    }

    #[test]
    fn a_key_that_waits_is_noticed() {
        let mut table = Table::default();
        let mut ledger = AcknowledgedWrites::default();
        ledger.changed(key("a"), value("1"), Version(1)).unwrap();
        assert_eq!(promise(ledger.is_published(&feed(&table))), Promise::ChangesArePublished);
        write(&mut table, "a");
        assert_eq!(promise(ledger.is_published(&feed(&table))), Promise::ChangesArePublished);
        publish(&mut table);
        assert_eq!(ledger.is_published(&feed(&table)), Ok(()));
    }

    /// The rows of a table.
    fn feed(table: &Table) -> Feed {
        let keys = table.rows().map(|(key, row)| (key.clone(), row.clone())).collect();
        Feed { keys, sequence: Some(table.sequence()), ..Feed::default() }
    }

    fn key(text: &str) -> FeedKey {
        FeedKey::parse(text).unwrap()
    }

    fn value(text: &str) -> Option<FeedValue> {
        FeedValue::parse(text).ok()
    }

    fn write(table: &mut Table, of: &str) {
        table.write(key(of), value("1").unwrap(), 9);
    }

    fn publish(table: &mut Table) {
        let publication = Publication::of(table.sequence(), table.pending(None, 9)).unwrap();
        table.commit(&publication).unwrap();
    }

    /// A page of updates to the key `k`, each number with a version of its own.
    fn page(numbers: &[u64], cursor: u64) -> FeedPage {
        let update = |number: &u64| Update {
            feed_sync_id: FeedSyncId(*number),
            key: key("k"),
            version: Version(*number * 2),
            value: value("1"),
        };
        let updates = numbers.iter().map(update).collect();
        FeedPage {
            updates,
            cursor: FeedSyncId(cursor),
            head: FeedSyncId(cursor),
            ..FeedPage::default()
        }
    }

    fn older_version(mut page: FeedPage) -> FeedPage {
        page.updates[0].version = Version(1);
        page
    }

    fn promise(kept: Result<(), Broken<Promise>>) -> Promise {
        kept.unwrap_err().rule
    }
}
