//! Where Kalends keeps what must not be lost: router records, channels and messages by month.
//!
//! [`contract`] says what a store promises to nodes, [`upkeep`] what to operators; the engines keep it:
//! [`embedded`] in a directory of this machine,
//! [`dynamo`] in tables that many nodes share. No other crate knows a table or SQL, and nothing here knows of sockets, actors or HTTP.

pub mod contract;
pub mod dynamo;
pub mod embedded;
pub mod feeds;
pub mod notifications;
pub mod stale;
pub mod upkeep;

pub use contract::{
    Answer, Cursor, MessageTables, MonthStep, Page, PageLimit, Registered, Registration,
    RouterTable, Store, StoreError, Stored,
};
pub use dynamo::{Billing, Dynamo, DynamoDoubles, DynamoOpenError, DynamoOptions};
pub use embedded::{Embedded, EmbeddedOptions, OpenError};
pub use feeds::FeedTables;
pub use notifications::{Notification, NotificationTable};
pub use stale::DropOldUsers;
pub use upkeep::Upkeep;
