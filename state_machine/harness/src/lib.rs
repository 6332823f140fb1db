//! Verification of Kalends' state machines. No behaviour is implemented here.
//!
//! - [`transcript`]: one connection's session as text, to read, run and write.
//! - [`invariants`]: the rules of every connection, and the promises of the whole service.
//! - [`feed`]: a feed's history as text, to read, run and write.
//! - [`chart`]: the table of states, found by running the machine.
//!
//! In production only `kalends dev replay` and `kalends dev states` use this crate.

pub mod chart;
pub mod feed;
#[cfg(test)]
#[path = "../../tests/support/fuzz.rs"]
mod fuzz;
pub mod invariants;
pub mod transcript;
