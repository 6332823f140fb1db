//! Where Kalends keeps what must not be lost: router records, channels and messages by month.
//!
//! [`store`] says what a store promises to nodes, [`maintenance`] what to operators; the engines keep it:
//! [`embedded`] in a directory of this machine,
//! [`dynamo`] in tables that many nodes share. No other crate knows a table or SQL, and nothing here knows of sockets, actors or HTTP.

pub mod dynamo;
pub mod embedded;
pub mod feeds;
pub mod inactive_users;
pub mod maintenance;
pub mod notifications;
pub mod store;

pub use dynamo::{Billing, Dynamo, DynamoOpenError, DynamoOptions, TestOverrides};
pub use embedded::{Embedded, EmbeddedOptions, OpenError};
pub use feeds::FeedTables;
pub use inactive_users::DropInactiveUsers;
pub use maintenance::StoreAdmin;
pub use notifications::{Notification, NotificationTable};
pub use store::{
    Cursor, MessageTables, MonthStep, Page, PageLimit, RegisterResult, Registration, RouterTable,
    Store, StoreError, StoreFuture, Stored,
};
