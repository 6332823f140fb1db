//! The DynamoDB engine beyond the contract: what it does when DynamoDB does not do what it is
//! asked, and how it gets on with rows that other software wrote.

mod both_engines;
mod conflicts;
mod costs;
mod empty_responses;
mod expiring_channels;
mod faults;
mod feed_publishing;
mod feed_replies;
mod feed_rows;
mod feed_writing;
mod floods;
mod foreign_rows;
mod missing_tables;
mod opening;
mod receipt_races;
mod script;
mod searching;
mod silence;
pub(crate) mod things;
mod throttling;
mod waiting;
