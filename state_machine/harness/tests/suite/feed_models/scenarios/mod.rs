//! The scenarios: each is about one subject, and allows only the disorder that its subject needs.

mod changes;
mod crashes;
mod horizon;
mod losses;
mod publishers;
mod readers;
mod settling;
mod wide;
