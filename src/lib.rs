//! Kalends, a Web Push server: HTTP, settings and the command line around the actors.

#![cfg_attr(
    test,
    expect(clippy::disallowed_methods, reason = "tests write files that no power loss meets")
)]

pub mod cli;
pub mod cluster;
pub mod command;
pub mod dev;
pub mod feeds;
#[cfg(test)]
#[path = "../state_machine/tests/support/fuzz.rs"]
mod fuzz;
pub mod limits;
pub mod monitoring;
pub mod operate;
pub mod push;
pub mod server;
pub mod settings;
pub mod system;
