//! Commands of an operator: `kalends preflight`, `kalends tables`, `kalends users`, `kalends store`, `kalends import`, `kalends access`, and those of `kalends feed` and
//! `kalends broadcast` that use the store.
//!
//! A command is a [`Request`](commands::Request). [`job::perform`] runs it, in the process of the command if
//! the store is free, in the server if the server holds the store: there it arrives through [`socket`], `DIR/admin.sock`. Either
//! way the command prints a stream of [`Output`](output::Output).
//!
//! - [`commands`], [`access_command`], [`import_command`], [`store_command`], [`help`]: the command line.
//! - [`operator_link`]: the link that opens the operator's page.
//! - [`command`]: runs a request and prints its output; [`backend`] finds the store.
//! - [`inspect`]: the facts and the findings of `kalends inspect`.
//! - [`keys_check`]: what `preflight` checks besides the store.
//! - [`client`], [`socket`]: HTTP over `admin.sock`.
//! - [`print`], `print_access`, `print_nodes`, [`bar`]: output for people, and as JSON.
//! - [`tail_cursor`]: the position of `feed tail`.
//!
//! Architecture Invariant: a job works in steps, each of which leaves the store whole. It can be stopped between two
//! steps and run again.

pub mod access_command;
pub mod backend;
pub mod bar;
pub mod client;
pub mod command;
pub mod commands;
#[cfg(test)]
mod fixture;
pub mod help;
pub mod import_command;
pub mod inspect;
pub mod job;
pub mod job_context;
pub mod keys_check;
pub mod operator_link;
pub mod output;
pub mod print;
mod print_access;
mod print_nodes;
pub mod socket;
pub mod store_command;
pub mod tail_cursor;

pub use access_command::{AccessAction, TokenAction};
pub use commands::{TablesAction, UsersAction};
pub use import_command::ImportAction;
pub use store_command::StoreAction;
