//! What comes back while a command runs, a line each.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use storage::maintenance::{Capacity, Table, TableStatus, Throughput};

use super::feed::{BroadcastRow, FeedRow, Page};
use super::request::{MonthName, Units};

/// One thing that is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    /// How far it has come.
    Progress(Progress),
    /// A sentence.
    Note(String),
    /// Something that was tried out.
    Check(CheckRow),
    /// The tables that there are.
    Tables(Vec<TableRow>),
    /// How the store stands.
    Status(Box<Status>),
    /// Some of the feeds that there are.
    Feeds(Vec<FeedRow>),
    /// Some of a feed's updates.
    Page(Page),
    /// Some of the broadcasts that there are.
    Broadcasts(Vec<BroadcastRow>),
    /// What holds it up. It goes on by itself.
    Problem(String),
    /// The last line.
    End(Completion),
}

/// How far it has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// With what.
    pub what: String,
    /// So many are done.
    pub done: u64,
    /// Of so many, about; where that is known.
    pub of: Option<u64>,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Completion {
    /// All is done.
    Done,
    /// All is done, and what was found is not as it should be.
    Unwell,
    /// It was stopped between two steps; what was done is done.
    Stopped,
    /// It was refused or failed. Says why and what to do.
    Failed(String),
}

/// Something that was tried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckRow {
    /// What.
    pub what: String,
    /// What is wrong, if anything is.
    pub problem: Option<String>,
}

/// A table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableRow {
    /// What is in it.
    pub holds: Holds,
    /// Whose month, where it is a month's.
    pub month: Option<MonthName>,
    /// Its name in the store.
    pub name: String,
    /// The store's word for its state.
    pub state: String,
    /// Rows.
    pub items: u64,
    /// Bytes.
    pub bytes: u64,
    /// What can be asked of it.
    pub throughput: Ask,
}

/// What is in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holds {
    /// The router records.
    Router,
    /// SimplePush notifications.
    Notifications,
    /// Sequences of feeds.
    Sequences,
    /// Keys of feeds.
    Feeds,
    /// Channels and messages.
    Messages,
}

/// What can be asked of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// What the machine can do.
    Unmetered,
    /// What is asked for is paid for.
    OnDemand,
    /// So much and no more.
    Provisioned(Units),
}

/// How the store stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The month it is.
    pub this_month: MonthName,
    /// Whether tables move with the month.
    pub rotation: bool,
    /// The tables that there are.
    pub tables: Vec<TableRow>,
    /// How many clients are on which month.
    pub clients: BTreeMap<MonthName, u64>,
    /// How many have an unfinished move away from which month.
    pub unfinished_moves: BTreeMap<MonthName, u64>,
    /// The months that `kalends tables drop-old` would drop.
    pub droppable: Vec<MonthName>,
    /// What to do, in sentences.
    pub advice: Vec<String>,
}

impl From<TableStatus> for TableRow {
    fn from(table: TableStatus) -> Self {
        let (holds, month) = match table.table {
            Table::Router => (Holds::Router, None),
            Table::Notifications => (Holds::Notifications, None),
            Table::Sequences => (Holds::Sequences, None),
            Table::Feeds => (Holds::Feeds, None),
            Table::Messages(month) => (Holds::Messages, Some(MonthName(month))),
        };
        let TableStatus { name, state, items, bytes, capacity, .. } = table;
        Self { holds, month, name, state, items, bytes, throughput: capacity.into() }
    }
}

impl From<Capacity> for Ask {
    fn from(capacity: Capacity) -> Self {
        match capacity {
            Capacity::Unmetered => Self::Unmetered,
            Capacity::OnDemand => Self::OnDemand,
            Capacity::Provisioned(Throughput { read, write }) => {
                Self::Provisioned(Units { read, write })
            }
        }
    }
}

impl From<Output> for String {
    /// The line as it stands on the socket.
    fn from(line: Output) -> Self {
        let mut text = serde_json::to_string(&line).expect("a line has only text as keys");
        text.push('\n');
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_read_as_it_was_written() {
        let month = MonthName("2026_11".parse().unwrap());
        let row = TableRow {
            holds: Holds::Messages,
            month: Some(month),
            name: "message_2026_11".into(),
            state: "active".into(),
            items: 3,
            bytes: 4096,
            throughput: Ask::Provisioned(Units { read: 5, write: 6 }),
        };
        let status = Status {
            this_month: month,
            rotation: true,
            tables: vec![row.clone()],
            clients: BTreeMap::from([(month, 3)]),
            unfinished_moves: BTreeMap::new(),
            droppable: vec![month],
            advice: vec!["all is well\nreally".into()],
        };
        for line in [
            Output::Progress(Progress { what: "users".into(), done: 1, of: Some(2) }),
            Output::Note("made 2026_11".into()),
            Output::Check(CheckRow { what: "read".into(), problem: Some("no".into()) }),
            Output::Tables(vec![row]),
            Output::Status(Box::new(status)),
            Output::Feeds(vec![FeedRow { feed: "f".into(), head: 3, keys: 2 }]),
            Output::Page(Page { updates: Vec::new(), cursor: 3, head: 4 }),
            Output::Broadcasts(vec![BroadcastRow { id: "a/b".into(), version: "\"1\"".into() }]),
            Output::Problem("down".into()),
            Output::End(Completion::Done),
            Output::End(Completion::Failed("why".into())),
        ] {
            let text = String::from(line.clone());
            assert_eq!(text.matches('\n').count(), 1);
            assert_eq!(serde_json::from_str::<Output>(&text).unwrap(), line);
        }
    }
}
