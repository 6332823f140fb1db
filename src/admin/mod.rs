//! What an operator does beside the server: `kalends preflight`, `kalends tables`, `kalends users`,
//! and what `kalends feed` and `kalends broadcast` do with the store.
//!
//! A command is a [`Request`](request::Request), and [`job::perform`] is the one place that does it: in
//! the process of the command where the store is free, inside the server where the server
//! holds it. There it comes in through [`socket`], `DIR/admin.sock`. Either way it answers with
//! [`Output`](output::Output)s.
//!
//! - [`args`], [`help`]: the command line.
//! - [`command`]: finds the store and prints what comes back; [`backend`] decides which way, and
//!   [`owner`] whether it is for us to open.
//! - [`keys_check`]: what `preflight` looks at beside the store.
//! - [`client`], [`socket`]: the two ends of `admin.sock`; [`address`]: where it is.
//! - [`print`], [`print_feed`], [`bar`]: for people, and as JSON.
//! - [`feed`]: feeds in requests and lines; [`tail_cursor`], [`cursor_file`]: how far one was followed;
//!   [`locked_file`]: what keeps two from using one file.
//!
//! Architecture Invariant: a job goes in steps, each of which leaves the store whole; it can be
//! stopped between any two and run again.

pub mod address;
pub mod args;
pub mod backend;
pub mod bar;
pub mod client;
pub mod command;
pub mod cursor_file;
pub mod feed;
#[cfg(test)]
mod fixture;
pub mod help;
pub mod job;
pub mod job_context;
pub mod keys_check;
pub mod locked_file;
pub mod output;
pub mod owner;
pub mod print;
pub mod print_feed;
pub mod request;
pub mod socket;
pub mod tail_cursor;

pub use args::{Preflight, TablesAction, UsersAction};
