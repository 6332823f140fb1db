//! What an operator asks of a store beside the nodes that use it: tables, their sizes and
//! throughput, users that stay away (seed 001, `autopush.db`; seed 002, "Message Table Rotation").
//!
//! Everything here is repeatable, goes in steps that the caller takes, and is safe beside live
//! nodes, except for [`StoreAdmin::copy_rows`] and [`StoreAdmin::move_records`], which want them stopped.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

pub use state_machine::store::Cursor;
use state_machine::{LastConnect, Month, Uaid};

use crate::feeds::FeedTables;
use crate::notifications::NotificationTable;
use crate::store::{Store, StoreFuture};

/// How many users one batch has at most (seed 001, `delete_uaids`; DynamoDB's `BatchWriteItem`).
pub const USERS_IN_A_BATCH: usize = 25;

/// Whose rows [`StoreAdmin::preflight`] writes and removes (seed 001). No user agent gets this id.
pub const PREFLIGHT_UAID: Uaid =
    Uaid([0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 0, 0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 0]);

/// The maintenance of a store.
pub trait StoreAdmin: Store + NotificationTable + FeedTables {
    /// Tries out everything a node does with the router table, its index and the tables of these months,
    /// and leaves nothing behind (seed 001, `preflight_check`). Each check says what is missing, so that an operator can mend it.
    fn preflight(&self, months: BTreeSet<Month>) -> StoreFuture<Vec<PreflightCheck>>;

    /// The tables that exist: the router, the legacy one, those of feeds, then the months, oldest first. In the embedded
    /// engine feeds have no tables to look after: they are in the router's file.
    fn tables(&self) -> StoreFuture<Vec<TableStatus>>;

    /// Counts some of the router records by the months they are on; go on until there is no `next`.
    fn records_by_month(&self, after: Option<Cursor>) -> StoreFuture<RecordsByMonth>;

    /// Users whose last connection was in one of the months of `seen`, by the `last_connect` index,
    /// at most [`USERS_IN_A_BATCH`]. A page may be empty and have a `next`.
    fn inactive_users(&self, seen: MonthRange, after: Option<Cursor>)
    -> StoreFuture<InactiveUsers>;

    /// Drops those of the users whose `last_connect` is still the one that was read, so that nobody
    /// who just came back is dropped. At most [`USERS_IN_A_BATCH`]. Answers how many it dropped.
    fn drop_inactive(&self, users: Vec<InactiveUser>) -> StoreFuture<usize>;

    /// Drops these users whatever their records say, [`USERS_IN_A_BATCH`] at a time; what the store
    /// did not take is given to it again.
    fn delete_uaids(&self, uaids: Vec<Uaid>) -> StoreFuture<()>;

    /// Copies some rows of a month, channels and messages, to another: channels are added, a message
    /// never replaces a newer one of its topic. Go on until there is no `next`.
    fn copy_rows(&self, from: Month, to: Month, after: Option<Cursor>)
    -> StoreFuture<CopyProgress>;

    /// Makes some of the records that name the month `from`, as `curmonth` or `oldmonth`, name `to`;
    /// where both would, the move is finished and `oldmonth` goes. Go on until there is no `next`.
    fn move_records(
        &self,
        from: Month,
        to: Month,
        after: Option<Cursor>,
    ) -> StoreFuture<CopyProgress>;

    /// Sets the throughput of a month's table, where tables have one.
    fn set_throughput(&self, month: Month, throughput: Throughput) -> StoreFuture<()>;

    /// Marks of the keys of the nodes that started on this store: what nodes that share it compare their
    /// keys by, as all writes answered before have left it. An engine that only one node can use has none.
    fn key_fingerprints(&self) -> StoreFuture<BTreeSet<String>>;

    /// Puts the marks `after` in the place of `before`, if these are still there. Answers whether the marks are `after`
    /// now; where they are not, another node was quicker.
    fn put_key_fingerprints(
        &self,
        before: BTreeSet<String>,
        after: BTreeSet<String>,
    ) -> StoreFuture<bool>;
}

/// One thing that was tried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreflightCheck {
    /// What: an action on a table.
    pub what: String,
    /// Whether it went well; otherwise what to do about it.
    pub outcome: Result<(), String>,
}

/// Which table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// The router records.
    Router,
    /// SimplePush notifications.
    Notifications,
    /// Sequences of feeds.
    Sequences,
    /// Keys of feeds.
    Feeds,
    /// Channels and messages of a month.
    Messages(Month),
}

/// What is to be said of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableStatus {
    /// Which it is.
    pub table: Table,
    /// Its name in the store.
    pub name: String,
    /// The store's word for its state; `active` where it can be used.
    pub state: String,
    /// Rows in it. DynamoDB counts every six hours; the embedded engine counts the first hundred
    /// thousand, and tells from where these end how many there are.
    pub items: u64,
    /// Bytes in it, counted as `items` are.
    pub bytes: u64,
    /// What can be asked of it.
    pub capacity: Capacity,
}

/// What can be asked of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capacity {
    /// What the machine can do.
    Unmetered,
    /// What is asked for is paid for.
    OnDemand,
    /// So much and no more.
    Provisioned(Throughput),
}

/// Capacity units a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Throughput {
    /// Reads of 4 KiB.
    pub read: u32,
    /// Writes of 1 KiB.
    pub write: u32,
}

/// How many records are on which months.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecordsByMonth {
    /// Records by `curmonth`.
    pub curmonth: BTreeMap<Month, u64>,
    /// Records with an unfinished move, by `oldmonth`.
    pub oldmonth: BTreeMap<Month, u64>,
    /// Records of user agents that name no month, or one that cannot be read: another prefix of the message
    /// tables is set than the one they were written with. Always 0 in the embedded engine, which fails there.
    pub unreadable: u64,
    /// Where to go on.
    pub next: Option<Cursor>,
}

/// From the first to the last, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MonthRange {
    /// The first.
    pub first: Month,
    /// The last.
    pub last: Month,
}

impl MonthRange {
    /// The keys of the `last_connect` index that lie in these months.
    pub fn keys(self) -> Range<LastConnect> {
        first_key(self.first)..first_key(self.last.next())
    }
}

/// Every key of the month is above it, and none of the month before.
fn first_key(month: Month) -> LastConnect {
    let digits: String = month.to_string().split('_').collect();
    let month: u64 = digits.parse().expect("a month is written in digits");
    LastConnect(month * 100_000_000)
}

/// Some users that stayed away.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InactiveUsers {
    /// Who.
    pub users: Vec<InactiveUser>,
    /// Where to go on.
    pub next: Option<Cursor>,
}

/// A user that stayed away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct InactiveUser {
    /// Who.
    pub uaid: Uaid,
    /// Since when, as it was read.
    pub last_connect: LastConnect,
}

/// What a step has done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CopyProgress {
    /// Rows or records looked at.
    pub seen: u64,
    /// Of which so many were written.
    pub written: u64,
    /// Where to go on.
    pub next: Option<Cursor>,
}

#[cfg(test)]
mod tests {
    use state_machine::{Span, Time};

    use super::*;

    #[test]
    fn a_months_keys_are_those_of_its_first_to_its_last_hour() {
        let december = Time(1_796_083_200_000);
        let month = Month::of(december);
        assert_eq!(month.to_string(), "2026_12");
        let keys = MonthRange { first: month, last: month }.keys();
        for uaid in [Uaid([0; 16]), Uaid([0xff; 16])] {
            let key = |time| LastConnect::of(time, uaid, LastConnect::SHARDS_MAX);
            assert!(keys.contains(&key(december)));
            assert!(!keys.contains(&key(december - Span(1))));
            let january = december + Span(31 * 24 * 3_600_000);
            assert!(keys.contains(&key(january - Span(1))));
            assert!(!keys.contains(&key(january)));
        }
    }
}
