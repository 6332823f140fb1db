//! Feeds: the histories of `fixtures/feeds`, the form they are written in, and random ones.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../support/cases.rs"]
mod cases;
mod docs;
mod fixtures;
#[path = "../support/fixtures.rs"]
mod folder;
mod format;
mod random;
mod trial;
