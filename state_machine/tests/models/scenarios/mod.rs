//! The scenarios: each is about one thing, and has as much disorder as that thing needs.

mod connections;
mod late_ack;
mod losses;
mod month;
mod pages;
mod throttling;
mod topic;
mod wide;
