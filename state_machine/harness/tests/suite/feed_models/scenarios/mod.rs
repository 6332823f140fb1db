//! The scenarios: each is about one thing, and has as much disorder as that thing needs.

mod changes;
mod crashes;
mod losses;
mod publishers;
mod readers;
mod settling;
mod wide;
