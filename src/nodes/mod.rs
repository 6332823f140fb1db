//! What is between nodes: how they name, sign and write to each other.
//!
//! - [`address`]: where nodes are, and which of them are ever called.
//! - [`signature`]: how a request and its answer show that they are from a node of this cluster.
//! - [`letter`]: a message on its way to another node.
//! - [`port`]: what other nodes ask of a connection node.
//! - [`remote`]: the other nodes, as this one reaches them.

pub mod address;
pub mod letter;
pub mod port;
pub mod remote;
pub mod signature;
