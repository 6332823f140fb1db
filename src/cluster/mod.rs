//! The HTTP interface between nodes. Signed requests of other nodes enter, and this node's pushes and notifications for
//! them. Answers to those requests, and the outcomes of these, leave.
//!
//! - [`signature`]: authentication of requests and answers.
//! - [`request`]: the requests, by method and path.
//! - [`about`]: what a node says of itself. [`callers`]: what the nodes that call this one said.
//! - [`wire_message`]: a message in the body of a request.
//! - [`inbound`]: the router port, which answers the requests of other nodes.
//! - [`outbound`]: delivery and notifications to other nodes.

pub mod about;
pub mod callers;
#[cfg(test)]
pub(crate) mod fixture;
pub mod inbound;
pub mod outbound;
mod request;
pub mod signature;
pub mod wire_message;
