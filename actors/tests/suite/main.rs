//! The actors as their neighbours meet them: user agents, application servers, the store, each other.
//!
//! Time stands still in every test until the test moves it, see [`clockwork`].

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bounds;
mod clock;
mod clockwork;
mod endings;
mod net;
mod node;
mod orders;
mod sessions;
mod slow_reader;
mod sockets;
mod wire;
