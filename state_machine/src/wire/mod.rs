//! The messages of a user agent's WebSocket: one JSON object in each text frame.
//!
//! Only this module knows the names of JSON fields.

mod incoming;
mod key;
mod outgoing;
pub mod status;

pub use incoming::{AckUpdate, ClientMessage, InvalidFrame};
pub use key::{BASE64, VapidKey};
pub use outgoing::{EndpointUrls, ServerMessage, write_payload};
