//! What an operator does on the command line: a folder for each capability, and in it a file for each command.
//!
//! Arguments and settings come in, from the command line or through a server's `admin.sock`. Sentences and reports leave,
//! as text or JSON. The operator's page calls the same jobs.

pub mod access;
pub mod backup;
#[cfg(test)]
mod bounds_tests;
pub mod check_config;
pub mod completions;
pub mod doctor;
pub mod exclusive;
pub mod health;
pub mod import;
pub mod init;
pub mod inspect;
pub mod keys;
pub mod nodes;
pub mod preflight;
pub mod refusals;
pub mod scheduled;
pub mod status;
pub mod store_copy;
pub mod tables;
pub mod users;
