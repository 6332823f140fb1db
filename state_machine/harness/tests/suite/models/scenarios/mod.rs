//! The scenarios: each is about one thing, and has as much disorder as that thing needs.

mod apart;
mod connections;
mod draining;
mod late_ack;
mod letters;
mod losses;
mod month;
mod pages;
mod throttling;
mod topic;
mod wide;
