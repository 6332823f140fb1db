//! The durable state of Kalends: router records, channels and messages by month, and feeds.
//!
//! [`store`] is the contract for nodes, [`feeds`] for feeds, [`maintenance`] for operators. Two
//! engines implement all of it: [`embedded`] in a directory of this machine, [`dynamo`] in tables
//! that many nodes share. [`durable`] writes files, also those of other crates.
//!
//! Architecture Invariant: no other crate knows a table or SQL. This crate knows no sockets, actors
//! or HTTP.

#![cfg_attr(
    test,
    expect(clippy::disallowed_methods, reason = "tests write files that no power loss meets")
)]

#[cfg(test)]
extern crate self as storage;

pub mod durable;
pub mod dynamo;
pub mod embedded;
pub mod feeds;
pub mod inactive_users;
pub mod maintenance;
pub mod notifications;
pub mod owner;
pub mod receipts;
mod registration;
pub mod rows;
pub mod rules;
pub mod store;
mod sync_support;
pub mod waiting;

pub use dynamo::{Billing, Dynamo, DynamoOpenError, DynamoOptions, TestOverrides};
pub use embedded::{Embedded, EmbeddedOptions, OpenError};
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
pub use waiting::{WaitingBound, WaitingLimits, WhenFull};
