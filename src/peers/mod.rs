//! What is between nodes: how they name, sign and write to each other.
//!
//! - [`address`]: where nodes are, and which of them are ever called.
//! - [`signature`]: how a request and its answer show that they are from a node of this cluster.
//! - [`wire_message`]: a message on its way to another node.
//! - [`inbound`]: what other nodes ask of a connection node.
//! - [`outbound`]: the other nodes, as this one reaches them.

pub mod address;
pub mod inbound;
pub mod outbound;
pub mod signature;
pub mod wire_message;
