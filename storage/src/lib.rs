//! Where Kalends keeps what must not be lost: router records, channels and messages by month.
//!
//! [`contract`] says what a store promises to nodes, [`upkeep`] what to operators; the engines keep it:
//! [`embedded`] in a directory of this machine. No other crate knows a table or SQL, and nothing here knows of sockets, actors or HTTP.

pub mod contract;
pub mod embedded;
pub mod notifications;
pub mod upkeep;

pub use contract::{
    Answer, Cursor, MessageTables, MonthStep, Page, PageLimit, Registered, Registration,
    RouterTable, Store, StoreError, Stored,
};
pub use embedded::{Embedded, EmbeddedOptions, OpenError};
pub use notifications::{Notification, NotificationTable};
pub use upkeep::Upkeep;
