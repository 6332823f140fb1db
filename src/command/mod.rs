//! What commands share, and the server with them: where a command runs, the socket to the server that holds the store,
//! progress and output. It knows no command.
//!
//! A [`Command`](entry::Command) comes in from the command line. If it is a
//! [`StoreCommand`](store_command::StoreCommand), it runs in its own process if the store is free, or in the server that
//! holds the store: there it arrives through `DIR/admin.sock`. Either way a stream of [`Output`](output::Output) leaves
//! it, which is printed as it arrives.
//!
//! - [`entry`]: the list of commands and its grammar. [`failure`]: how a command ends.
//! - [`store_command`]: runs a command on a store; [`backend`] finds the store, [`upgrade`] shows its upgrade, [`context`] has what a job knows.
//! - [`job`]: a job at work, in steps. [`served`]: a job in a server.
//! - [`client`], [`socket`]: HTTP over `admin.sock`; [`protocol`]: what both know.
//! - [`output`], [`printer`], [`bar`], [`text`]: output for people, and as JSON.
//!
//! Architecture Invariant: a job works in steps, each of which leaves the store whole. It can be stopped between two
//! steps and run again.

pub mod backend;
pub mod bar;
pub mod client;
pub mod context;
pub mod entry;
pub mod error;
pub mod failure;
#[cfg(test)]
pub mod fixture;
pub mod job;
pub mod output;
pub mod printer;
pub mod protocol;
pub mod served;
pub mod socket;
pub mod store_command;
pub mod text;
pub mod upgrade;

pub use backend::Backend;
pub use context::{Context, Servers};
pub use entry::{Command, Commands, Group, Shown, load, load_flags};
pub use error::CommandError;
pub use failure::Failure;
pub use job::{Job, JobError};
pub use output::{Completion, NoReport, Output, Report};
pub use store_command::{StoreCommand, run_and_print};
