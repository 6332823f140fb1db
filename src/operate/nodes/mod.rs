//! `kalends nodes`: the nodes of a cluster, and whether they answer.
//!
//! - [`table`]: asks the nodes; the operator's page has the same rows.
//! - [`command`]: the command, which adds the user agents that router records have of each node.

pub mod command;
pub mod table;
