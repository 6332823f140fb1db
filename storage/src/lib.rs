//! The durable state of Kalends: router records, channels and messages by month, and feeds.
//!
//! [`store`] is the contract for nodes, [`feeds`] for feeds, [`maintenance`] for operators. Each engine implements
//! all of it in a crate of its own:
//!
//! - `storage_sqlite` in a directory of this machine;
//! - `storage_postgresql` in a database that many nodes share;
//! - `storage_dynamodb` in tables that many nodes share.
//!
//! They share the [`rules`] above their rows, and the first two the statements in [`sql`]. Those of a server are one
//! [`networked`] store, with the [`queue`] that keeps the order of an agent's writes. [`durable`] writes files, also those of
//! other crates, and [`data_dir`] is where a server keeps them.
//!
//! Architecture Invariant: outside of [`sql`] no other crate than an engine knows a table or SQL, and no engine knows another
//! one. These crates know no sockets, actors or HTTP.

mod answer;
pub mod copied_rows;
pub mod data_dir;
pub mod durable;
pub mod feeds;
pub mod inactive_users;
pub mod maintenance;
pub mod networked;
pub mod notifications;
pub mod owner;
pub mod queue;
pub mod receipts;
pub mod record_row;
pub mod registration;
pub mod rules;
pub mod sql;
pub mod store;
mod sync_support;
pub mod upgrade;
pub mod waiting_limits;

pub use feeds::FeedTables;
pub use inactive_users::DropInactiveUsers;
pub use maintenance::StoreAdmin;
pub use notifications::{Notification, NotificationTable};
pub use receipts::{ExpectedReceipt, ExpiredReceipts, ReceiptTables};
pub use registration::router_type;
pub use store::{
    BridgedRegistration, COMMIT_BOUNDS_MS, CommitTimes, Cursor, DiskSpace, EngineState, FullScope,
    MonthStep, Page, PageLimit, QueueState, RecordReads, RegisterResult, Registration,
    SettledMessages, SlowWrites, Store, StoreAnswer, StoreError, StoreFuture, StoreOp, Stored,
};
pub use sync_support::SyncSupport;
pub use waiting_limits::{WaitingBound, WaitingLimits, WhenFull};
