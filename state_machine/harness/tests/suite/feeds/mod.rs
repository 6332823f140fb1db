//! Feeds: the histories of `fixtures/feeds`, the form they are written in, and random ones.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod docs;
mod fixtures;
mod format;
mod random;
mod trial;
