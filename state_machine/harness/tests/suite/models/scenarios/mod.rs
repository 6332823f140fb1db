//! The scenarios: each is about one subject, and allows only the disorder that its subject needs.

mod apart;
mod channels;
mod connections;
mod draining;
mod expiry;
mod full;
mod idle;
mod late_ack;
mod losses;
mod month;
mod no_space;
mod notifications;
mod pages;
mod receipts;
mod throttling;
mod topic;
mod urgency;
mod wide;
