//! Kalends, a Web Push server: HTTP, settings and the command line around the actors.

pub mod admin;
pub mod cli;
pub mod feed_cli;
pub mod http;
pub mod importer;
pub mod keys;
pub mod nodes;
pub mod replay;
pub mod serve;
pub mod settings;
pub mod states;
pub mod store;
pub mod telemetry;
pub mod tools;
