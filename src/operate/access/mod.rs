//! `kalends access`: the access tokens of user agents, and the link that opens the operator's page.
//!
//! - [`token`]: names, lifetimes and results that the commands share. [`table`]: the tokens in the store.

pub mod add;
pub mod list;
pub mod operator;
pub mod revoke;
pub mod rotate;
pub mod table;
pub mod token;

use crate::command::Group;

pub const GROUP: Group = Group {
    name: "access",
    about: "Manage access tokens of user agents, and sign in to the operator's page",
    help: "\
With access = \"token\" a user agent connects at wss://HOST/u/TOKEN. The commands run beside a live
server and without one. On DynamoDB every node follows them within feed_poll_ms.

Examples:
  kalends access add alice --data-dir /var/lib/kalends
  kalends access list --data-dir /var/lib/kalends",
};
