//! The actors as their neighbours meet them: user agents, application servers, the store, each
//! other.
//!
//! Time stands still in a test until the test moves it, see [`clockwork`]; and what the clients of
//! any test did is held against the rules, see [`traces`].

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod access;
mod backpressure;
mod bounds;
mod bridged;
mod broadcasts;
mod clock;
mod clockwork;
mod endings;
#[path = "../../../storage/tests/wire_server/engines.rs"]
mod engines;
mod feeds;
mod idle_state;
mod limits;
mod net;
mod node;
mod observe;
mod orders;
mod rotation;
mod sessions;
mod several_nodes;
mod simplepush;
mod slow_reader;
mod sockets;
mod store_double;
mod traces;
mod unkind;
mod wire;
#[path = "../../../storage/tests/wire_server/engine.rs"]
mod wire_engine;

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;
