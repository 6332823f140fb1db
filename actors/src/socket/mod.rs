//! A connection from its first request to its last frame.
//!
//! - [`connection`]: a connection from its first request on, and how its socket is taken from HTTP.
//! - [`http_stream`]: its bytes while it speaks HTTP, one request at a time by [`framing`]. [`pieces`]: a large answer.
//!   [`parked`]: the wait between two requests.
//! - [`taken_socket`]: its socket after HTTP. [`websocket`]: a client behind it, and [`frames`] and [`io`] its frames.
//!   [`event_stream`]: an endless body.
//! - [`mod@http2`]: a connection that speaks HTTP/2, which never becomes a WebSocket, and [`http2_budget`] its work.
//! - [`http`]: what both share. [`usage`]: what the port knows of a connection.

mod connection;
mod event_stream;
mod frames;
mod framing;
mod http;
mod http2;
mod http2_budget;
mod http_stream;
mod io;
mod parked;
mod pieces;
mod taken_socket;
mod usage;
mod websocket;

pub use connection::service;
pub use event_stream::EndlessBody;
pub use http::{HttpOptions, Io};
pub use http2::http2;
pub use usage::ConnectionUse;
pub use websocket::{WebSocket, upgrade};
