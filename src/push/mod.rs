//! The public HTTP interface. What enters are pushes of application servers, WebSocket handshakes and registrations of
//! user agents, and health checks. What leaves are deliveries to the endpoint actor, sessions, and answers.
//!
//! - [`routes`]: which URL is answered by what: `web_push`, `simplepush`, `matrix`, `messages`, `socket`, `health`.
//! - `endpoint`, `expected_receipt`: what every push does; [`app`]: the state that handlers share.
//! - [`push_counters`], [`push_history`]: what is counted and remembered of pushes.
//! - [`error`]: the answers to refusals; [`refusals`]: the last of them.
//! - [`judge`]: what is wrong with a server; `facts`: by what it is judged.
//! - `request`: what a push says; [`vapid`]: who sent it; [`origins`], `urls`: the names of this server, and the secrets
//!   in its URLs.
//! - `port`: what every request passes; [`web`]: the page of a browser.
//! - [`bridges`], [`registration`]: FCM and APNs, and the API of their user agents.

pub mod app;
pub mod bridges;
mod endpoint;
pub mod error;
mod expected_receipt;
mod facts;
mod health;
pub mod judge;
mod matrix;
mod messages;
pub mod origins;
mod params;
mod port;
pub mod push_counters;
pub mod push_history;
pub mod refusals;
pub mod registration;
mod request;
pub mod routes;
mod simplepush;
mod socket;
mod urls;
pub mod vapid;
pub mod web;
mod web_push;

pub use facts::begin_of;
pub(crate) use port::body;
pub use port::{
    accept_failures, access, authorization, local_request, methods, origin_check,
    request_body_drain, request_id,
};
pub use request::{push_headers, receipts};
pub use urls::{endpoint_token, fernet, message_url};
