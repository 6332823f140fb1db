//! `kalends store`: moves everything from one store to another, and repairs what an earlier build has lost.
//!
//! - [`copy`], [`repair`]: a command each. [`receipts`]: the repair of receipt subscriptions, which a copy begins with.
//! - [`each_row`]: a reading of all rows of a table. [`row_digest`]: a digest of them.

pub mod copy;
pub mod each_row;
pub mod receipts;
pub mod repair;
pub mod row_digest;

use crate::command::Group;

pub const GROUP: Group = Group {
    name: "store",
    about: "Move everything from one store to another",
    help: "\
docs/operations.md describes the whole move, to a cluster and back.

Examples:
  kalends store copy --to dynamodb --server-stopped --data-dir /var/lib/kalends
  kalends store copy --to embedded --server-stopped --data-dir /var/lib/kalends",
};
