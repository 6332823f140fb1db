//! What a command writes while it runs. Between server and command it is one JSON value a line.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use state_machine::Month;
use state_machine::feed::{FeedKey, FeedPage, FeedValue};
use storage::feeds::FeedState;
use storage::maintenance::{PreflightCheck, Table, TableStatus};

use super::inspect::Inspection;

/// A piece of output, printed as soon as it arrives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    /// Progress of a long step.
    Progress(Progress),
    /// A sentence for standard output.
    Note(String),
    /// The result of one check of `preflight`.
    Check(PreflightCheck),
    /// All tables of the store.
    Tables(Vec<TableStatus>),
    /// The state of the store, of `tables status`.
    Status(Box<Status>),
    /// The facts and findings of `inspect`.
    Inspection(Box<Inspection>),
    /// The nodes that router records name, those with the most agents first.
    Nodes(Vec<NodeRow>),
    /// A batch of feeds, by name.
    Feeds(Vec<FeedState>),
    /// A page of a feed's updates.
    Page(FeedPage),
    /// A batch of broadcasts: the id and the present version of each, by id.
    Broadcasts(Vec<(FeedKey, FeedValue)>),
    /// The tables that are equal in both stores of a copy.
    Copied(Vec<CopiedTable>),
    /// A new access token, which is printed once.
    NewAccess(NewAccess),
    /// A batch of access tokens, by name.
    Access(Vec<AccessRow>),
    /// A temporary failure, after which the job continues by itself. Printed on standard error.
    Problem(String),
    /// The last output of every command.
    End(Completion),
}

/// A table of a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiedTable {
    #[serde(flatten)]
    pub table: Table,
    pub rows: u64,
    /// Of all rows, in any order. Another build may compute another one.
    pub sha256: String,
}

/// A new access token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewAccess {
    pub name: String,
    pub token: String,
    /// In seconds since 1970.
    pub expires_s: Option<u64>,
    /// 0 is no limit.
    pub agents_max: u32,
}

/// An access token in the list. The counts are known to the server that holds the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessRow {
    pub name: String,
    /// `valid`, `expired` or `revoked`.
    pub state: String,
    /// In seconds since 1970.
    pub created_s: u64,
    pub expires_s: Option<u64>,
    /// 0 is no limit.
    pub agents_max: u32,
    /// User agents that are connected now.
    pub connected: Option<u64>,
    /// Pushes to its user agents, and their size in bytes, since the server started.
    pub pushes: Option<u64>,
    pub bytes: Option<u64>,
}

/// A node, as this process sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRow {
    /// Its name in router records.
    pub node: String,
    /// Records that name it.
    pub agents: u64,
    pub state: NodeState,
    /// Time until a node behind an open breaker is tried again.
    pub probe_in_ms: Option<u64>,
    /// Notifications that wait to be sent to it; none if the process is not a server of a cluster.
    pub notifications: Option<usize>,
    /// How far its clock is ahead of that of the process that asks, in seconds; 0 within `cluster_clock_skew_s`. None of
    /// that process, and without an answer.
    pub clock_ahead_s: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    ThisServer,
    /// It answers, and shares the keys.
    Answers,
    Unreachable(String),
    /// This process cannot ask it.
    Unknown,
}

/// The progress of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The step, such as `counting agents`.
    pub what: String,
    pub done: u64,
    /// Items in all if that is known; DynamoDB's counts are hours old.
    pub of: Option<u64>,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Completion {
    /// The command did its work.
    Done,
    /// The command did its work, and a check failed.
    Unwell,
    /// The command was stopped between two steps; completed steps remain.
    Stopped,
    /// The command failed or was refused: the reason, and what to do.
    Failed(String),
}

/// The state of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The present month by the clock of the process that holds the store.
    pub this_month: Month,
    /// Whether a new table is used each month.
    pub rotation: bool,
    pub tables: Vec<TableStatus>,
    /// Number of agents on each month. Programs read it under the name `clients`.
    #[serde(rename = "clients")]
    pub agents: BTreeMap<Month, u64>,
    /// Number of agents with an unfinished move away from each month.
    pub unfinished_moves: BTreeMap<Month, u64>,
    /// Number of records with a router type or recipient that is not served, which count as none.
    pub other_types: u64,
    /// Number of users whose drop was interrupted.
    pub unfinished_drops: u64,
    /// The months that `kalends tables drop-old` would drop.
    pub droppable: Vec<Month>,
    /// What the operator should do, in sentences.
    pub advice: Vec<String>,
}

impl fmt::Debug for NewAccess {
    /// The token opens the server.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewAccess").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Completion {
    /// Its name in the log. The operator has the reason of a failure.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Unwell => "a check failed",
            Self::Stopped => "stopped",
            Self::Failed(_) => "failed",
        }
    }
}

impl Output {
    /// The output as one line of JSON.
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).expect("all keys are text") + "\n"
    }
}

#[cfg(test)]
mod tests {
    use state_machine::feed::{FeedName, FeedSyncId, Sequence};
    use storage::maintenance::{Capacity, Throughput};

    use super::*;

    #[test]
    fn every_output_is_read_from_the_line_it_was_written_as() {
        let month: Month = "2026_11".parse().unwrap();
        let table = |table| TableStatus {
            table,
            name: "message_2026_11".into(),
            state: "active".into(),
            items: 3,
            bytes: 4096,
            capacity: Capacity::Provisioned(Throughput { read: 5, write: 6 }),
        };
        let tables = vec![table(Table::Router), table(Table::Messages(month))];
        let status = Status {
            this_month: month,
            rotation: true,
            tables: tables.clone(),
            agents: BTreeMap::from([(month, 3)]),
            unfinished_moves: BTreeMap::new(),
            other_types: 1,
            unfinished_drops: 2,
            droppable: vec![month],
            advice: vec!["all is well\nreally".into()],
        };
        let sequence = Sequence { value: FeedSyncId(3), keys: 2, ..Sequence::default() };
        let feed = FeedState { name: FeedName::broadcasts(), sequence };
        let page = FeedPage { cursor: FeedSyncId(3), head: FeedSyncId(4), ..FeedPage::default() };
        let (id, version) = (FeedKey::parse("a/b").unwrap(), FeedValue::parse("\"1\"").unwrap());
        for output in [
            Output::Progress(Progress { what: "users".into(), done: 1, of: Some(2) }),
            Output::Note("made 2026_11".into()),
            Output::Check(PreflightCheck { what: "read".into(), outcome: Ok(()) }),
            Output::Check(PreflightCheck { what: "read".into(), outcome: Err("no".into()) }),
            Output::Tables(tables),
            Output::Status(Box::new(status)),
            Output::Feeds(vec![feed]),
            Output::Page(page),
            Output::Broadcasts(vec![(id, version)]),
            Output::NewAccess(NewAccess {
                name: "a".into(),
                token: "kal_x".into(),
                expires_s: Some(5),
                agents_max: 6,
            }),
            Output::Access(vec![AccessRow {
                name: "a".into(),
                state: "valid".into(),
                created_s: 1,
                expires_s: None,
                agents_max: 2,
                connected: Some(3),
                pushes: None,
                bytes: Some(5),
            }]),
            Output::Problem("down".into()),
            Output::End(Completion::Done),
            Output::End(Completion::Failed("why".into())),
        ] {
            let line = output.to_line();
            assert_eq!(line.matches('\n').count(), 1);
            assert_eq!(serde_json::from_str::<Output>(&line).unwrap(), output);
        }
    }
}
