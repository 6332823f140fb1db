//! Kalends, a Web Push server: HTTP, settings and the command line around the actors.

#![cfg_attr(
    test,
    expect(clippy::disallowed_methods, reason = "tests write files that no power loss meets")
)]

pub mod acme;
pub mod admin;
pub mod backup;
pub mod bridges;
pub mod cli;
pub mod clock;
pub mod dev;
pub mod doctor;
pub mod feeds;
#[cfg(test)]
#[path = "../state_machine/tests/support/fuzz.rs"]
mod fuzz;
pub mod http;
pub mod http_port;
pub mod https_client;
pub mod import;
pub mod keys;
pub mod limits;
pub mod monitoring;
pub mod node_address;
pub mod peers;
pub mod regular_file;
pub mod renamed;
pub mod server;
pub mod service;
pub mod settings;
pub mod store;

pub mod telemetry;
pub mod tls;
mod unread_request;
