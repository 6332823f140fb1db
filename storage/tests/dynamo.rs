//! The DynamoDB engine beyond the contract: what it does when DynamoDB does not do what it is asked,
//! and how it gets on with rows that other software wrote.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "dynamo/both_engines.rs"]
mod both_engines;
#[path = "dynamo/conflicts.rs"]
mod conflicts;
#[path = "dynamo/empty_responses.rs"]
mod empty_responses;
#[path = "dynamo/expiring_channels.rs"]
mod expiring_channels;
#[path = "dynamo/feed_costs.rs"]
mod feed_costs;
#[path = "dynamo/feed_publishing.rs"]
mod feed_publishing;
#[path = "dynamo/feed_replies.rs"]
mod feed_replies;
#[path = "dynamo/feed_rows.rs"]
mod feed_rows;
#[path = "dynamo/feed_writing.rs"]
mod feed_writing;
#[path = "dynamo/floods.rs"]
mod floods;
#[path = "dynamo/foreign_rows.rs"]
mod foreign_rows;
#[path = "dynamo/missing_tables.rs"]
mod missing_tables;
#[path = "dynamo/opening.rs"]
mod opening;
#[path = "dynamo/script.rs"]
mod script;
#[path = "dynamo/searching.rs"]
mod searching;
#[path = "dynamo/silence.rs"]
mod silence;
#[path = "dynamo/things.rs"]
mod things;
#[path = "dynamo/throttling.rs"]
mod throttling;
#[path = "wire_server/mod.rs"]
mod wire_server;
