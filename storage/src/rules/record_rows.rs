//! The rows of router records.

use state_machine::{LastConnect, Month, NodeId, Time, Uaid};

use crate::copied_rows::{CopiedPage, CopiedRow};
use crate::maintenance::DROPPED;
use crate::record_row::RecordRow;
use crate::store::Cursor;

/// The router table as an engine keeps it.
#[expect(
    async_fn_in_trait,
    reason = "whether a rule is Send depends on its engine, and callers see it"
)]
pub trait RecordRows {
    type Error;

    async fn record(&self, uaid: Uaid) -> Result<Option<RecordRow>, Self::Error>;

    /// Changes a record, if its guards hold.
    async fn change_record(&self, change: &GuardedChange) -> Result<Changed, Self::Error>;

    /// Makes a page of changes, each if its guards hold. Returns the number of changed records.
    async fn change_records(&self, changes: Vec<GuardedChange>) -> Result<u64, Self::Error> {
        let mut changed = 0;
        for change in changes {
            changed += u64::from(self.change_record(&change).await?.is_done());
        }
        Ok(changed)
    }

    /// A page of the records, in an order that no change of them changes.
    async fn records(&self, after: Option<&Cursor>) -> Result<RecordPage, Self::Error>;
}

#[derive(Default)]
pub struct RecordPage {
    pub rows: Vec<RecordRow>,
    /// Served ones among them with a month that cannot be read.
    pub unreadable: u64,
    pub next: Option<Cursor>,
}

/// A page of a copy has no nodes: no agent is connected to one.
impl From<RecordPage> for CopiedPage {
    fn from(page: RecordPage) -> Self {
        let rows = page.rows.into_iter();
        let rows = rows.map(|row| CopiedRow::Record(RecordRow { node: None, ..row })).collect();
        Self { rows, next: page.next, ..Self::default() }
    }
}

/// A change of one record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GuardedChange {
    pub uaid: Uaid,
    /// All of them must hold. A record that is absent is never changed.
    pub guards: Vec<RecordGuard>,
    pub change: RecordChange,
}

/// What a record must have.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RecordGuard {
    Node(NodeId),
    /// An agent behind a bridge.
    Bridged,
    ConnectedAt(Time),
    LastConnect(LastConnect),
    Curmonth(Month),
    Oldmonth(Option<Month>),
}

/// What becomes of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecordChange {
    Months {
        curmonth: Month,
        oldmonth: Option<Month>,
        /// None leaves it, as in `Connected`.
        last_connect: Option<LastConnect>,
    },
    EndMove,
    ClearNode,
    MarkDropped,
    Connected {
        at: Time,
        last_connect: Option<LastConnect>,
    },
}

/// The result of a change.
pub enum Changed {
    /// With the record before it.
    Done(RecordRow),
    /// With the record, if it is known.
    Refused(Option<RecordRow>),
}

impl Changed {
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done(_))
    }
}

impl RecordGuard {
    pub fn holds(&self, record: &RecordRow) -> bool {
        match self {
            Self::Node(node) => record.node.as_ref() == Some(node),
            Self::Bridged => record.recipient.is_some(),
            Self::ConnectedAt(at) => record.connected_at == *at,
            Self::LastConnect(key) => record.last_connect == *key,
            Self::Curmonth(month) => record.curmonth == Some(*month),
            Self::Oldmonth(month) => record.oldmonth == *month,
        }
    }
}

impl RecordChange {
    /// The record after the change.
    pub fn apply(self, before: RecordRow) -> RecordRow {
        match self {
            Self::Months { curmonth, oldmonth, last_connect } => RecordRow {
                curmonth: Some(curmonth),
                oldmonth,
                last_connect: last_connect.unwrap_or(before.last_connect),
                ..before
            },
            Self::EndMove => RecordRow { oldmonth: None, ..before },
            Self::ClearNode => RecordRow { node: None, ..before },
            // The data of a bridge stay in the table, and no type says whose they are.
            Self::MarkDropped => {
                RecordRow { router_type: DROPPED.to_owned(), recipient: None, ..before }
            }
            Self::Connected { at, last_connect } => RecordRow {
                connected_at: at,
                last_connect: last_connect.unwrap_or(before.last_connect),
                ..before
            },
        }
    }
}
