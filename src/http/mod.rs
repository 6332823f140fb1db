//! The HTTP side: what application servers send, and what they are told.

pub mod app;
pub mod error;
pub mod feeds;
pub mod gate;
mod health;
pub mod location;
mod messages;
mod params;
mod push;
pub mod push_headers;
pub mod routes;
mod socket;
pub mod token;
pub mod unread;
pub mod vapid;

pub use error::PushError;
