//! What verifies the state machines of Kalends: no rule is decided here.
//!
//! - [`transcript`]: one connection's session as text, to read, run and write.
//! - [`invariants`]: what is true of every connection, and what the whole service promises.
//! - [`feed`]: the same two for feeds.
//! - [`chart`]: the table of states, found by running the machine.
//!
//! In production only `kalends dev replay` and `kalends dev states` use it.

pub mod chart;
pub mod feed;
pub mod invariants;
pub mod transcript;
