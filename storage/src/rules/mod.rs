//! The rules of a store, each written once: what a write of a record, of a feed or of a receipt changes, whatever engine
//! keeps the rows.
//!
//! A rule is an async function over a trait of rows ([`record_rows`], [`feed_rows`]). A method of such a trait is one
//! request or one statement on one table, and [`commit`](feed_rows::FeedRows::commit) is one transaction. The first line of
//! a rule says which of them it calls; `tests/suite/dynamo/costs` pins their number.
//!
//! - The embedded engine polls a rule once, inside a job of its writer or a read: each row method is ready at once
//!   ([`finished`]).
//! - PostgreSQL awaits it in a transaction that holds a lock, so that no commit is refused.
//! - DynamoDB awaits it in the agent's turn. Another node may change the rows meanwhile, so a commit may be refused, and the
//!   rule begins again.
//!
//! Architecture Invariant: a rule holds no more rows than a page, and knows no engine.

pub mod feed_rows;
pub mod feeds;
pub mod receipts;
pub mod record_rows;
pub mod records;
pub mod topics;

use futures_util::FutureExt;

/// The result of a rule whose row methods wait for nothing.
pub fn finished<T>(rule: impl Future<Output = T>) -> T {
    rule.now_or_never().expect("the rows of this engine are there at once")
}
