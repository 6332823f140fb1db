//! Verification of Kalends' state machines. No behaviour is implemented here.
//!
//! - [`script`]: what the script languages share, and the trace of a run.
//! - [`scripts`]: a script of any language.
//! - [`transcript`]: one connection's session as text, to read, run and write.
//! - [`feed`]: a feed's history as text.
//! - [`delivery`]: one push as text.
//! - [`two_nodes`]: one agent on two nodes as text.
//! - [`model_store`]: a store as a value, which keeps the contract.
//! - [`invariants`]: the rules of every connection, and the promises of the whole service.
//! - [`chart`]: the table of states, found by running the machine.
//!
//! In production only `kalends dev replay`, `dev view` and `dev states` use this crate.

pub mod chart;
pub mod delivery;
pub mod feed;
#[cfg(test)]
#[path = "../../tests/support/fuzz.rs"]
mod fuzz;
pub mod invariants;
pub mod model_store;
pub mod script;
pub mod scripts;
pub mod transcript;
pub mod two_nodes;
