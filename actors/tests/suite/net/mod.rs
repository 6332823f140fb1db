//! Real sockets on the loopback device, in the runtime of the test.

mod metered;
mod peer;
mod server;

pub(crate) use metered::Traffic;
pub(crate) use peer::{Heard, Listener, Peer, Speaker};
pub(crate) use server::{Server, options};
