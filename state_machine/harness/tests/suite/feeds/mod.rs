//! Feeds: the histories of `fixtures/feeds`, their form, and random histories.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod docs;
mod fixtures;
mod format;
mod random;
mod trial;
