//! The contract of maintenance: tables, their sizes and throughput, inactive users
//! (docs/sources.md#push-service-database-module).
//!
//! Every operation is repeatable, runs in steps that the caller makes, and is safe beside live
//! nodes, except [`StoreAdmin::copy_rows`], [`StoreAdmin::move_records`], [`StoreAdmin::write_rows`] and
//! [`StoreAdmin::repair_records`], which need all nodes stopped.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
pub use state_machine::store::Cursor;
use state_machine::{
    BridgeName, LastConnect, Month, NodeBinding, NodeId, RouterRecord, Span, Time, Uaid,
};

use crate::copied_rows::{CopiedPage, CopiedRow};
use crate::feeds::FeedTables;
use crate::notifications::NotificationTable;
use crate::record_row::RecordRow;
use crate::store::{Store, StoreFuture, answered};

/// The largest batch of users: the limit of DynamoDB's `BatchWriteItem`.
pub const USERS_IN_A_BATCH: usize = 25;

/// The most messages of one user that one step deletes in a month.
pub const ROWS_IN_A_STEP: usize = 100;

/// How far a floor of message ids may be ahead. One that is further ahead is of a clock that was wrong, and gives way.
pub const ID_FLOOR_AHEAD_MAX: Span = Span::from_secs(24 * 60 * 60);

/// The directory in the data directory that [`StoreAdmin::snapshot`] fills.
pub const SNAPSHOT_DIR: &str = "backup.partial";

/// The router type of a record that [`StoreAdmin::mark_dropped`] has marked. No agent has this type.
pub const DROPPED: &str = "dropped";

/// The owner of the rows that [`StoreAdmin::preflight`] writes and removes. No user agent gets this
/// id.
pub const PREFLIGHT_UAID: Uaid =
    Uaid([0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 0, 0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 0]);

/// Called with the pages of a snapshot that are copied, and all of them. The copy ends early if it returns false.
pub type SnapshotStep = Box<dyn FnMut(u64, u64) -> bool + Send>;

/// The operations of `kalends tables`, `users`, `import` and `preflight`.
pub trait StoreAdmin: Store + NotificationTable + FeedTables {
    /// Tries every operation of a node on the router table, its index and the tables of these
    /// months, and removes its rows. A failed check names what is missing and the remedy.
    fn preflight(&self, months: BTreeSet<Month>) -> StoreFuture<Vec<PreflightCheck>>;

    /// Settings of the engine's server with which an answered write can be lost, each with what can be lost. A server
    /// starts with them, and warns.
    fn risks(&self) -> StoreFuture<Vec<String>> {
        answered(Ok(Vec::new()))
    }

    /// The tables that exist: router, legacy, feeds, then the months, oldest first. The embedded
    /// engine lists no table of feeds: they are in the router's file.
    fn tables(&self) -> StoreFuture<Vec<TableStatus>>;

    /// Counts a page of the router records by the months they name; the last page has no `next`.
    fn records_by_month(&self, after: Option<Cursor>) -> StoreFuture<RecordsByMonth>;

    /// Counts what waits for a page of the user agents of a month. Expired messages are counted until they are deleted.
    /// The last page has no `next`. Unsupported by an engine that would have to read all messages.
    fn waiting_page(&self, month: Month, after: Option<Cursor>) -> StoreFuture<WaitingPage>;

    /// Deletes messages that expired before `now` in all months, in pages with other writes between them. Returns how
    /// many. DynamoDB deletes them by itself.
    fn delete_expired(&self, now: Time) -> StoreFuture<u64>;

    /// Creates a record, unless the user has one of any type. Returns whether it did.
    fn create_record(&self, record: RouterRecord) -> StoreFuture<bool>;

    /// At most [`USERS_IN_A_BATCH`] users whose last connection was in the months of `seen`, by the
    /// `last_connect` index. A page may be empty and have a `next`.
    fn inactive_users(&self, seen: MonthRange, after: Option<Cursor>)
    -> StoreFuture<InactiveUsers>;

    /// Begins the drop of a user: marks its record, which counts as none from then on and stays in the `last_connect`
    /// index. With `seen` only if `last_connect` is still that, so that a user who reconnected stays. Repeatable.
    /// None if there is no such record.
    fn mark_dropped(
        &self,
        uaid: Uaid,
        seen: Option<LastConnect>,
    ) -> StoreFuture<Option<MarkedUser>>;

    /// Deletes rows of at most [`USERS_IN_A_BATCH`] users in a month: their channels first, so that no message is
    /// stored after that, and at most [`ROWS_IN_A_STEP`] messages of each. Returns whether there were any, so that
    /// the caller repeats it until none are left. False without a table.
    fn delete_rows(&self, uaids: Vec<Uaid>, month: Month) -> StoreFuture<bool>;

    /// Deletes those of these records that are marked as dropped. A record that was made again meanwhile stays.
    fn delete_uaids(&self, uaids: Vec<Uaid>) -> StoreFuture<()>;

    /// Whether the month's table has a row of a user agent, so that agents are or were on that month. False without a
    /// table.
    fn has_rows(&self, month: Month) -> StoreFuture<bool>;

    /// Copies a page of a month's channels and messages to another month: channels are added, and a
    /// message never replaces a newer one of its topic. The last page has no `next`.
    fn copy_rows(&self, from: Month, to: Month, after: Option<Cursor>)
    -> StoreFuture<CopyProgress>;

    /// Replaces the month `from` by `to` in a page of the records, as `curmonth` and as `oldmonth`.
    /// If both would be equal, `oldmonth` is removed. The last page has no `next`.
    fn move_records(
        &self,
        from: Month,
        to: Month,
        after: Option<Cursor>,
    ) -> StoreFuture<CopyProgress>;

    /// Sets `connected_at` to `now` in those records of a page that have one later than `latest`, and `last_connect` to
    /// the hour of `now` if it is later. Nothing else is changed. The last page has no `next`.
    fn repair_records(
        &self,
        clock: RepairClock,
        after: Option<Cursor>,
    ) -> StoreFuture<CopyProgress>;

    /// A page of a table's rows; the last one has no `next`. Empty without a table.
    fn read_rows(&self, table: Table, after: Option<Cursor>) -> StoreFuture<CopiedPage>;

    /// Counts the rows of a table as [`StoreAdmin::read_rows`] does, with those that it leaves out, by another way: the
    /// store counts what its tables hold. So a row that a reading passes over is noticed. 0 without a table.
    fn count_rows(&self, table: Table) -> StoreFuture<u64>;

    /// Writes whole rows that [`StoreAdmin::read_rows`] of another store returned, in any order, into a table that exists.
    /// A row that is there already stays or is replaced. Neither bounds nor channels are checked.
    fn write_rows(&self, table: Table, rows: Arc<Vec<CopiedRow>>) -> StoreFuture<()>;

    /// Sets the throughput of a month's table, if tables have one.
    fn set_throughput(&self, month: Month, throughput: Throughput) -> StoreFuture<()>;

    /// Copies all files, as they were at one moment, into the empty directory
    /// [`SNAPSHOT_DIR`] of the data directory. Writes wait only while the moment is
    /// chosen. Unsupported by an engine without files.
    fn snapshot(&self, on_step: SnapshotStep) -> StoreFuture<()>;

    /// Fingerprints of the keys of the nodes that started on this store, by which nodes verify that
    /// they share keys. Read consistently. Unsupported by an engine that only one node can use.
    fn key_fingerprints(&self) -> StoreFuture<BTreeSet<String>>;

    /// Replaces the fingerprints `before` by `after`, if they are unchanged. Returns whether they
    /// are `after` now; if not, another node changed them first.
    fn put_key_fingerprints(
        &self,
        before: BTreeSet<String>,
        after: BTreeSet<String>,
    ) -> StoreFuture<bool>;

    /// The floor of message ids: no server on this store has given an id with a later time, but by a clock that was
    /// wrong. 0 if no server has started.
    fn id_floor(&self) -> StoreFuture<Time>;

    /// Raises the floor of message ids. A floor that is more than [`ID_FLOOR_AHEAD_MAX`] ahead of this one is replaced.
    fn raise_id_floor(&self, floor: Time) -> StoreFuture<()>;
}

/// One operation that [`StoreAdmin::preflight`] tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreflightCheck {
    /// The action and the table.
    pub what: String,
    /// The error and its remedy.
    #[serde(rename = "problem", with = "problem")]
    pub outcome: Result<(), String>,
}

/// The JSON of an outcome: the error, or null.
mod problem {
    use super::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        outcome: &Result<(), String>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        outcome.as_ref().err().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Result<(), String>, D::Error> {
        Ok(Option::deserialize(deserializer)?.map_or(Ok(()), Err))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "holds", content = "month", rename_all = "snake_case")]
pub enum Table {
    Router,
    /// The legacy table of SimplePush.
    Notifications,
    /// The sequences that number the keys of feeds.
    Sequences,
    /// The keys of all feeds.
    Feeds,
    /// Channels and messages of a month.
    Messages(Month),
}

impl Table {
    /// All but those of months.
    pub const OF_NO_MONTH: [Self; 4] =
        [Self::Router, Self::Notifications, Self::Sequences, Self::Feeds];

    pub fn month(self) -> Option<Month> {
        match self {
            Self::Messages(month) => Some(month),
            Self::Router | Self::Notifications | Self::Sequences | Self::Feeds => None,
        }
    }
}

/// A table's entry in the list of tables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableStatus {
    #[serde(flatten)]
    pub table: Table,
    /// The name of the table or file in the store.
    pub name: String,
    /// The store's name of the state; `active` if the table is usable.
    pub state: String,
    /// Number of rows. DynamoDB counts every six hours; the embedded engine counts up to 100,000
    /// and estimates beyond.
    pub items: u64,
    /// Size in bytes, as old as `items`.
    pub bytes: u64,
    #[serde(rename = "throughput")]
    pub capacity: Capacity,
}

/// The throughput of a table, and how it is billed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Capacity {
    /// Limited by the machine only.
    Unmetered,
    /// Billed by each request.
    OnDemand,
    /// A fixed maximum, billed whether used or not.
    Provisioned(Throughput),
}

/// Capacity units per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Throughput {
    /// Reads of 4 KiB.
    pub read: u32,
    /// Writes of 1 KiB.
    pub write: u32,
}

/// The number of router records that name each month.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecordsByMonth {
    pub curmonth: BTreeMap<Month, u64>,
    /// Records with an unfinished move, by `oldmonth`.
    pub oldmonth: BTreeMap<Month, u64>,
    /// Records that name a node, by the node.
    pub nodes: BTreeMap<NodeId, u64>,
    /// Records of user agents without a readable month: they were written with another prefix of
    /// the message tables. Always 0 in the embedded engine, which returns an error instead.
    pub unreadable: u64,
    /// Records with a router type or recipient that is not served, which count as none. Their months are counted
    /// too, and keep their tables.
    pub other_types: u64,
    /// Records of user agents behind a bridge, also those whose recipient is not served.
    pub bridged: u64,
    /// Records that [`StoreAdmin::mark_dropped`] has marked: the drop of these users was interrupted.
    pub dropped: u64,
    /// The greatest `connected_at`. None without records.
    pub latest: Option<Time>,
    pub next: Option<Cursor>,
}

/// The messages that wait for a page of user agents.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WaitingPage {
    pub messages: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
    pub next: Option<Cursor>,
}

/// A range of months, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MonthRange {
    pub first: Month,
    pub last: Month,
}

impl MonthRange {
    /// The keys of the `last_connect` index in these months.
    pub fn keys(self) -> Range<LastConnect> {
        first_key(self.first)..first_key(self.last.next())
    }
}

/// A lower bound of the month's keys, above those of the month before.
fn first_key(month: Month) -> LastConnect {
    let digits: String = month.to_string().split('_').collect();
    let month: u64 = digits.parse().expect("a month is written in digits");
    LastConnect(month * 100_000_000)
}

/// What [`StoreAdmin::repair_records`] takes for the present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepairClock {
    pub now: Time,
    /// A later `connected_at` is one of a clock that was ahead.
    pub latest: Time,
    /// Index keys of an hour, as the servers spread them.
    pub last_connect_shards: usize,
}

impl RepairClock {
    /// The `last_connect` of a repaired record.
    pub fn last_connect(self, uaid: Uaid, there: LastConnect) -> LastConnect {
        there.min(LastConnect::of(self.now, uaid, self.last_connect_shards))
    }
}

/// A page of inactive users.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InactiveUsers {
    pub users: Vec<InactiveUser>,
    pub next: Option<Cursor>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct InactiveUser {
    pub uaid: Uaid,
    /// The index key of the last connection, as it was read.
    pub last_connect: LastConnect,
}

impl InactiveUser {
    /// The position behind this user, in the order of the index.
    pub fn cursor(&self) -> Cursor {
        Cursor::new(format!("{} {}", self.last_connect.0, self.uaid))
    }

    /// None if it is no position.
    pub fn at(cursor: &Cursor) -> Option<Self> {
        let (key, uaid) = cursor.as_str().split_once(' ')?;
        let last_connect = LastConnect(key.parse().ok()?);
        Some(Self { uaid: uaid.parse().ok()?, last_connect })
    }
}

/// A user whose record is marked as dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkedUser {
    pub uaid: Uaid,
    /// The connection that the record names. It may have ended.
    pub binding: Option<NodeBinding>,
}

impl RecordsByMonth {
    /// Counts the router type of one record.
    pub fn add_type(&mut self, record: &RecordRow) {
        match &*record.router_type {
            DROPPED => self.dropped += 1,
            router_type => {
                self.other_types += u64::from(!record.has_served_type());
                self.bridged += u64::from(BridgeName::parse(router_type).is_some());
            }
        }
    }
}

/// The result of one step of copying rows or moving records.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CopyProgress {
    /// Rows or records that were read.
    pub seen: u64,
    /// Rows or records that were written.
    pub written: u64,
    pub next: Option<Cursor>,
}

#[cfg(test)]
mod tests {
    use state_machine::{Span, Time};

    use super::*;

    #[test]
    fn a_table_and_a_check_have_the_json_that_commands_print() {
        let status = |table, capacity| TableStatus {
            table,
            name: "name".to_owned(),
            state: "active".to_owned(),
            items: 3,
            bytes: 4096,
            capacity,
        };
        let provisioned = Capacity::Provisioned(Throughput { read: 5, write: 6 });
        let month = Table::Messages("2026_11".parse().unwrap());
        let rest = r#""name":"name","state":"active","items":3,"bytes":4096,"throughput""#;
        for (status, json) in [
            (
                status(Table::Router, Capacity::OnDemand),
                format!(r#"{{"holds":"router",{rest}:"on_demand"}}"#),
            ),
            (
                status(month, provisioned),
                format!(
                    r#"{{"holds":"messages","month":"2026_11",{rest}:{{"provisioned":{{"read":5,"write":6}}}}}}"#
                ),
            ),
        ] {
            assert_eq!(serde_json::to_string(&status).unwrap(), json);
            assert_eq!(serde_json::from_str::<TableStatus>(&json).unwrap(), status);
        }
        for outcome in [Ok(()), Err("no".to_owned())] {
            let check = PreflightCheck { what: "read".to_owned(), outcome };
            let json = serde_json::to_value(&check).unwrap();
            assert_eq!(json["problem"].as_str(), check.outcome.as_ref().err().map(String::as_str));
            assert_eq!(serde_json::from_value::<PreflightCheck>(json).unwrap(), check);
        }
    }

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
