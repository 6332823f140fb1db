//! `kalends tables`: the message tables of the months, which an operator lists, creates, copies and drops.
//!
//! Each command is a file. What leaves is the text or JSON of the tables, and [`advice`] on what to do; [`census`] counts
//! the agents of each month, which also `nodes` prints.

pub mod advice;
pub mod census;
pub mod copy;
pub mod create;
pub mod drop;
pub mod drop_old;
pub mod list;
pub mod old;
pub mod status;
pub mod table_text;
#[cfg(test)]
mod tests;

use crate::command::Group;

pub const GROUP: Group = Group {
    name: "tables",
    about: "Manage the message tables of the months",
    help: "\
All except copy can run beside a live server; all can be repeated. docs/maintenance.md has a line
for cron.

Examples:
  kalends tables status --data-dir /var/lib/kalends
  kalends tables create --config /etc/kalends/kalends.toml",
};
