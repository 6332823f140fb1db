//! The core of Kalends as pure state machines.
//!
//! This crate has no IO, no clock, no randomness and no async. Time, fresh ids and answers arrive
//! as arguments, and effects are returned as data. So an actor runs the same types that fixtures
//! replay and a model checker explores.
//!
//! - [`connection`]: one user agent's WebSocket session, from hello to close.
//! - [`delivery`]: one push of an application server, from the first read to the answer.
//! - [`registry`]: the connections of this node.
//! - [`feed`]: tables of keys whose changes are numbered, their publishers and consumers.
//! - [`access`]: the tokens of a closed server, a feed that every node follows.
//! - [`receipt`]: delivery receipts, reserved feeds of their senders.
//! - [`broadcast`]: the feed that every node consumes for its user agents.
//! - [`bridge`]: user agents behind the push service of their platform.
//! - [`bridged_call`]: one call on such an agent, which also moves it to this month.
//! - [`breaker`]: the circuit breaker of a peer node.
//! - [`clocks`]: which clocks of a cluster are wrong.
//! - [`token_bucket`]: a rate limit with a burst.
//! - [`paging`]: pages of reads, and their failure.
//! - [`staggered_fanout`]: wakes many subscribers one after the other.
//! - [`wire`]: the messages of user agents and server, as JSON.

pub mod access;
pub mod backoff;
pub mod breaker;
pub mod bridge;
pub mod bridged_call;
pub mod broadcast;
#[cfg(test)]
#[path = "../tests/support/cases.rs"]
mod cases;
pub mod clocks;
pub mod connection;
pub mod delivery;
pub mod feed;
#[cfg(test)]
#[path = "../tests/support/fuzz.rs"]
mod fuzz;
pub mod ids;
pub mod log_limiter;
pub mod message;
pub mod month;
pub mod paging;
pub mod receipt;
pub mod record;
pub mod registry;
pub mod staggered_fanout;
pub mod store;
pub mod time;
pub mod token_bucket;
pub mod wire;

pub use access::AccessId;
pub use bridge::{BridgeName, BridgeOutcome, BridgeRecipient};
pub use clocks::{ClockComparison, ClockDifference, ComparedClock};
pub use ids::{Chid, ConnectionId, MessageId, NodeId, OpId, PushId, Uaid};
pub use message::{Encoding, Message, MessageKey, Payload, Topic, Urgency};
pub use month::Month;
pub use receipt::{AckCode, Receipt, ReceiptRequest};
pub use record::{LastConnect, NodeBinding, RouterRecord, RouterType};
pub use time::{Span, Time};

/// The name of a state, an enum's variant, for a trace.
fn variant_name(state: &impl std::fmt::Debug) -> String {
    format!("{state:?}").chars().take_while(char::is_ascii_alphanumeric).collect()
}
