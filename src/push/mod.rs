//! The public HTTP interface: pushes, WebSocket upgrades of user agents, and health checks.

pub mod accept_failures;
pub mod access;
pub mod app;
pub(crate) mod body;
pub mod bridges;
pub mod endpoint_token;
pub mod error;
mod health;
mod matrix;
pub mod message_url;
mod messages;
pub mod origin_check;
mod params;
pub mod push_counters;
pub mod push_headers;
pub mod push_history;
pub mod receipts;
pub mod registration;
pub mod request_body_drain;
pub mod request_id;
pub mod routes;
mod simplepush;
mod socket;
pub mod vapid;
pub mod web;
mod web_push;

pub use error::PushError;
