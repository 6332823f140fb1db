//! Feeds: over HTTP, on the command line, and broadcasts imported from another service. Requests, commands and versions
//! enter. Changes of feeds, and what their readers see, leave.

pub mod cli;
pub mod http;
pub mod import;
pub mod store;
