//! Feeds: over HTTP, on the command line, and broadcasts imported from another service.

pub mod cli;
pub mod http;
pub mod import;
pub mod store;
