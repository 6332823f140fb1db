//! The rows of a store as maps, on which tests run the rules of [`storage::rules`].
//!
//! - [`Request`] and [`Answer`]: the row methods as values.
//! - [`Tables`]: the maps, which execute a request at a time.
//! - [`Rows`] and [`RowOf`]: the traits of rows, above whatever [executes](Execute) their requests.
//! - [`Suspended`]: a rule that a model stops at each request, so that others act, or the rule crashes, in between.
//!
//! It is as weak as the weakest engine. Each method is a request of its own, and a refused change does not say which record
//! is there. A subscription that has ended is removed in several steps, and readers may see a publication in part.
//!
//! Architecture Invariant: no production code depends on it.

mod request;
mod rows;
mod tables;

pub use request::{Answer, Commit, Conflict, KeyCommit, Request, RowOfMessage};
pub use rows::{Call, Execute, Replay, RowOf, Rows, Suspended};
pub use tables::{Feed, Tables};
