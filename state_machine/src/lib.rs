//! The core of Kalends as pure state machines.
//!
//! No IO, no clock, no randomness, no async in this crate: time, fresh ids and the answers of the
//! outside come in as arguments, orders go out as data. That is what lets one and the same type be
//! run by an actor, replayed from a fixture and explored by a model checker.
//!
//! - [`connection`]: one user agent's WebSocket session, from hello to close.
//! - [`delivery`]: one push of an application server, from look-up to answer.
//! - [`registry`]: who is connected to this node.
//! - [`feed`]: tables of keys whose changes are numbered, and those who follow them.
//! - [`broadcast`]: a feed that every node follows for its user agents.
//! - [`breaker`]: when another node that failed is tried again.
//! - [`token_bucket`]: how many of something are let through in a second.
//! - [`staggered_fanout`]: who is woken when many want to know, one after the other.
//! - [`wire`]: what user agents say and hear, as JSON.

pub mod backoff;
pub mod breaker;
pub mod broadcast;
#[cfg(test)]
#[path = "../tests/support/cases.rs"]
mod cases;
pub mod connection;
pub mod delivery;
pub mod feed;
pub mod ids;
pub mod log_limiter;
pub mod message;
pub mod month;
pub mod record;
pub mod registry;
pub mod staggered_fanout;
pub mod store;
pub mod time;
pub mod token_bucket;
pub mod wire;

pub use ids::{Chid, ConnectionId, MessageId, NodeId, OpId, PushId, Uaid};
pub use message::{Encoding, Message, MessageKey, Payload, Topic, Urgency};
pub use month::Month;
pub use record::{LastConnect, NodeBinding, RouterRecord, RouterType};
pub use time::{Span, Time};
